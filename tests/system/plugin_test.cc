// Plug-ins as their authors meet them: the SDK is installed as its packages are, a project is
// written, built and tested outside the tree, and its library is used by a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/system/installed.h"
#include "tests/system/libtorch.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::Printed;
using testing_support::RunShell;
using testing_support::Simulation;
using testing_support::WriteConfig;

const std::string kMacaw = MACAW_BIN_DIR "/macaw";

// Programs and SDK are installed where no other test looks.
class Plugin : public testing::Test {
 protected:
  Plugin() { testing_support::Install({"command", "server", "worker", "sdk"}, sdk_); }

  std::string NewProject(const std::string& name) {
    const std::string folder = root_ + "/" + name;
    const Printed made = RunShell(absl::StrCat(kMacaw, " new --cpp ", name, " --out ", folder));
    EXPECT_EQ(made.exit, 0) << made.text;
    return folder;
  }
  Printed Build(const std::string& folder) {
    return RunShell(absl::StrCat("cmake -G Ninja -S ", folder, " -B ", folder,
                                 "/build -Dmacaw_DIR=", sdk_, "/lib/cmake/macaw -DMACAW=", sdk_,
                                 "/bin/macaw", " && cmake --build ", folder, "/build"));
  }
  static void Replace(const std::string& file, const std::string& what, const std::string& with) {
    const std::string text = *ReadFile(file);
    ASSERT_NE(text.find(what), std::string::npos) << what;
    ASSERT_TRUE(AtomicWriteFile(file, absl::StrReplaceAll(text, {{what, with}})).ok());
  }

  const testing_support::TemporaryFolder folder_;
  const std::string root_ = folder_.path(), sdk_ = root_ + "/sdk";
};

// A plug-in may call any function of these rooms, also one that the program itself never calls.
TEST(Programs, HaveTheRoomsOfTheSdkWhole) {
  const std::string build = MACAW_BIN_DIR "/..";
  const std::string archives =
      RunShell(
          absl::StrCat("cd ", build, " && ls core/libmacaw_core.a plan/libmacaw_plan.a ",
                       "data/libmacaw_data.a aggregation/libmacaw_aggregation.a ",
                       "models/libmacaw_models_spec.a training/libmacaw_training_api.a ",
                       "algorithms/libmacaw_algorithms_api.a algorithms/libmacaw_algorithms.a ",
                       "sdk/libmacaw_sdk.a | tr '\\n' ' '"))
          .text;
  for (const char* file :
       {"bin/macaw", "bin/macaw-server", "bin/macaw-worker", "sdk/libmacaw_testing.so"}) {
    const Printed missing = RunShell(absl::StrCat(
        "cd ", build, " && nm -D --defined-only ", file,
        " | awk '{print $3}' | sort -u > /tmp/$$.has && nm -g --defined-only ", archives,
        " 2>/dev/null | awk '$2 == \"T\" {print $3}' | sort -u | comm -23 - /tmp/$$.has",
        "; rm /tmp/$$.has"));
    EXPECT_EQ(missing.text, "") << file;
  }
}

TEST_F(Plugin, ANewProjectBuildsPassesItsTestsAndKeepsTheLaw) {
  MACAW_NEEDS_LIBTORCH();
  const std::string folder = NewProject("heron");
  const Printed without = Build(folder);
  EXPECT_NE(without.exit, 0);
  EXPECT_THAT(without.text, HasSubstr("macaw-backend-torch-dev")) << "its loss needs LibTorch";

  testing_support::Install({"torch", "libtorch", "libtorch_dev"}, sdk_);
  const Printed built = Build(folder);
  ASSERT_EQ(built.exit, 0) << built.text;
  const Printed tested =
      RunShell(absl::StrCat("ctest --output-on-failure --test-dir ", folder, "/build"));
  ASSERT_EQ(tested.exit, 0) << tested.text;
  EXPECT_THAT(tested.text, HasSubstr("100% tests passed"));
  EXPECT_THAT(tested.text, HasSubstr("heron_test"));  // the rule in whole rounds, without a program

  const std::string config = folder + "/run.toml";
  for (const std::string& where :
       {"--plugin " + folder + "/build/libheron.so", "--config " + config}) {
    const Printed shown = RunShell(absl::StrCat(kMacaw, " algorithms heron ", where));
    EXPECT_EQ(shown.exit, 0) << shown.text;
    EXPECT_THAT(shown.text, HasSubstr("[algorithm.heron]"));
    EXPECT_THAT(RunShell(absl::StrCat(kMacaw, " models ", where)).text, HasSubstr("heron-net"));
  }

  Simulation one("one", {config, "--processes", "1", "--slots", "1"});
  ASSERT_EQ(one.Wait(), 0) << one.output();
  Simulation four("four", {config, "--processes", "2", "--slots", "2"});
  ASSERT_EQ(four.Wait(), 0) << four.output();
  EXPECT_EQ(one.digest(), four.digest());
  EXPECT_EQ(one.metrics(), four.metrics());
  EXPECT_THAT(one.metrics(), HasSubstr("\"rule_update_norm\":"));

  // Another build of the plug-in is another run: it is not resumed by mistake, and names what
  // differs.
  Replace(folder + "/heron.cc", "mu_(setup.Get<double>(\"mu\"))",
          "mu_(setup.Get<double>(\"mu\") + 1)");
  ASSERT_EQ(Build(folder).exit, 0);
  Simulation resumed("resumed", {"--resume", one.folder(), "--rounds", "12"});
  EXPECT_NE(resumed.Wait(), 0);
  EXPECT_THAT(resumed.output(), HasSubstr("plugins"));

  // An exception ends the run with the plug-in's name, and no process crashes.
  Replace(folder + "/heron.cc", "stage.hooks = loss_;", "throw std::runtime_error(\"eclipse\");");
  const Printed broken = Build(folder);
  ASSERT_EQ(broken.exit, 0) << broken.text;
  Simulation thrown("thrown", {config});
  EXPECT_EQ(thrown.Wait(), 2) << thrown.output();
  EXPECT_THAT(thrown.output(), HasSubstr("plug-in \"heron\", algorithm heron: eclipse"));
}

TEST_F(Plugin, BuiltinsTakenOutOfTheTreeGiveTheirOwnBits) {
  MACAW_NEEDS_LIBTORCH();
  const std::string folder = NewProject("outside");
  std::string source = R"(#include "sdk/plugin.h"
#include "core/status.h"
#define Scaffold OutsideScaffold
#define Mime OutsideMime
#define FedRep OutsideFedRep
#include "algorithms/builtin.h"
#include "scaffold.inc"
#include "mime.inc"
#include "fedrep.inc"
namespace {
absl::Status Contribute(macaw::sdk::Catalogue& catalogue) {
  for (macaw::algorithms::Description rule :
       {macaw::algorithms::Scaffold(), macaw::algorithms::Mime(), macaw::algorithms::FedRep()}) {
    rule.name = "outside-" + rule.name;
    MACAW_RETURN_IF_ERROR(catalogue.AddAlgorithm(std::move(rule)));
  }
  return absl::OkStatus();
}
}  // namespace
MACAW_PLUGIN("outside", "1", Contribute)
)";
  ASSERT_TRUE(AtomicWriteFile(folder + "/outside.cc", source).ok());
  for (const char* rule : {"scaffold", "mime", "fedrep"}) {
    fs::copy_file(absl::StrCat(MACAW_SOURCE_DIR, "/algorithms/", rule, ".cc"),
                  absl::StrCat(folder, "/", rule, ".inc"));
  }
  Replace(folder + "/CMakeLists.txt", "outside.cc focal_loss.cc TORCH", "outside.cc");
  const Printed built = Build(folder);
  ASSERT_EQ(built.exit, 0) << built.text;

  const std::string config = WriteConfig("outside");
  struct Case {
    std::string rule;
    std::vector<std::string> same;
  };
  for (const auto& [rule, same] :
       std::vector<Case>{{"scaffold", {}},
                         {"mime", {}},
                         {"fedrep", {"--set", "evaluation.clients=true"}},
                         {"scaffold", {"--set", R"(update.codec=["acpsgd 2"])"}},
                         {"mime", {"--set", R"(update.codec=["topk 0.1", "bits 8"])"}}}) {
    SCOPED_TRACE(absl::StrCat(rule, " ", same.empty() ? "" : same.back()));
    const auto run = [&, &same = same](const std::string& name, std::vector<std::string> more) {
      more.insert(more.begin(), config);
      more.insert(more.end(), same.begin(), same.end());
      more.insert(more.end(), {"--set", absl::StrCat("algorithm.name=", name)});
      Simulation simulation(name, more);
      EXPECT_EQ(simulation.Wait(), 0) << simulation.output();
      return simulation.digest() + simulation.metrics();
    };
    const std::string inside = run(rule, {});
    EXPECT_FALSE(inside.empty());
    EXPECT_EQ(run(absl::StrCat("outside-", rule),
                  {"--set", absl::StrCat("plugins=[\"", folder, "/build/liboutside.so\"]")}),
              inside);
  }
}

// Top-k with error feedback, Gaussian noise with its ε, PowerSGD: client state, random numbers on
// the server, state from one phase to the next, metrics of their own.
TEST_F(Plugin, RulesOutsideTheTreePassTheirTestsAndKeepTheLaw) {
  const std::string folder = root_ + "/rules";
  fs::copy(absl::StrCat(MACAW_SOURCE_DIR, "/tests/sdk/plugins"), folder);
  const Printed built = Build(folder);
  ASSERT_EQ(built.exit, 0) << built.text;
  const Printed tested =
      RunShell(absl::StrCat("ctest --output-on-failure --test-dir ", folder, "/build"));
  ASSERT_EQ(tested.exit, 0) << tested.text;

  const std::string config = WriteConfig("rules");
  struct Rule {
    std::string name, column;
    std::vector<std::string> settings;
  };
  for (const Rule& rule :
       std::vector<Rule>{{"topk", "rule_error_norm", {"algorithm.topk.fraction=0.05"}},
                         {"gaussian",
                          "rule_epsilon",
                          {"cohort.sampling=poisson", "cohort.weight=uniform",
                           "algorithm.gaussian.update_clip=1"}},
                         {"powersgd", "used_bound_whole", {}}}) {
    SCOPED_TRACE(rule.name);
    const auto arguments = [&](std::vector<std::string> more) {
      std::vector<std::string> all = {
          config,
          "--set",
          "algorithm.name=" + rule.name,
          "--set",
          "model.name=mlp",
          "--set",
          absl::StrCat("plugins=[\"", folder, "/build/lib", rule.name, ".so\"]")};
      for (const std::string& setting : rule.settings) all.insert(all.end(), {"--set", setting});
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    Simulation one("one", arguments({"--processes", "1", "--slots", "1"}));
    ASSERT_EQ(one.Wait(), 0) << one.output();
    EXPECT_THAT(one.metrics(), HasSubstr(rule.column));
    Simulation four("four", arguments({"--processes", "2", "--slots", "2"}));
    ASSERT_EQ(four.Wait(), 0) << four.output();
    EXPECT_EQ(one.digest(), four.digest());
    EXPECT_EQ(one.metrics(), four.metrics());

    Simulation killed("killed", arguments({"--processes", "2", "--slots", "1", "--set",
                                           "emulation.pause_probability=1", "--set",
                                           "emulation.pause_seconds=0.02"}));
    const auto first_round = [](const nlohmann::json& event) { return event["event"] == "round"; };
    ASSERT_TRUE(killed.WaitForEvent(first_round));
    for (const pid_t worker : killed.Children("macaw-worker")) ::kill(worker, SIGKILL);
    ASSERT_EQ(killed.Wait(), 0) << killed.output();
    EXPECT_EQ(killed.digest(), one.digest());
    EXPECT_EQ(killed.metrics(), one.metrics());

    const Printed replayed = RunShell(
        absl::StrCat(kMacaw, " replay ", one.folder(), " --out ", root_, "/replay-", rule.name));
    EXPECT_EQ(replayed.exit, 0) << replayed.text;

    // The clients of two keep what they did not send, which a codec would change.
    Simulation coded("coded", arguments({"--set", R"(update.codec=["bits 8"])"}));
    if (rule.name == "gaussian") {
      EXPECT_EQ(coded.Wait(), 0) << coded.output();
      EXPECT_NE(coded.digest(), one.digest());
    } else {
      EXPECT_EQ(coded.Wait(), 2) << coded.output();
      EXPECT_THAT(coded.output(), HasSubstr("update.codec"));
      EXPECT_THAT(coded.output(), HasSubstr("keep a state"));
    }
  }
}

TEST_F(Plugin, OneOfAnotherReleaseIsRefusedWithBothTags) {
  ASSERT_TRUE(AtomicWriteFile(root_ + "/old.cc", R"(
struct Entry { const char *tag, *name, *version; void* contribute; };
extern "C" const Entry* macaw_plugin() {
  static const Entry entry = {"macaw 0.0.1, compiler 9", "old", "1", nullptr};
  return &entry;
})")
                  .ok());
  ASSERT_TRUE(AtomicWriteFile(root_ + "/none.cc", "int unrelated = 1;\n").ok());
  for (const char* name : {"old", "none"}) {
    const Printed built = RunShell(absl::StrCat("c++ -shared -fPIC -o ", root_, "/lib", name,
                                                ".so ", root_, "/", name, ".cc"));
    ASSERT_EQ(built.exit, 0) << built.text;
  }
  const Printed old = RunShell(absl::StrCat(kMacaw, " plugin check ", root_, "/libold.so"));
  EXPECT_NE(old.exit, 0);
  EXPECT_THAT(old.text, HasSubstr("it was built for (macaw 0.0.1, compiler 9), this program is"));
  const Printed none = RunShell(absl::StrCat(kMacaw, " plugin check ", root_, "/libnone.so"));
  EXPECT_NE(none.exit, 0);
  EXPECT_THAT(none.text, HasSubstr("it is no Macaw plug-in"));
  // A run names the file and stops before it begins.
  Simulation simulation("refused", {WriteConfig("refused"), "--set",
                                    absl::StrCat("plugins=[\"", root_, "/libold.so\"]")});
  EXPECT_NE(simulation.Wait(), 0);
  EXPECT_THAT(simulation.output(), HasSubstr("libold.so"));
}

}  // namespace
}  // namespace macaw
