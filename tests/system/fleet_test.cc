// Fleets: an authority, a server without data, and devices that enrol and train over mutual TLS
// (deploy/fleet.sh); and the commands for it by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/public_data.h"
#include "testing/temporary_folder.h"
#include "tests/system/installed.h"
#include "tests/system/libtorch.h"
#include "tests/system/simulation.h"
#include "tests/system/table_rules.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;
using testing_support::Printed;
using testing_support::RunProgram;
using testing_support::TemporaryFolder;

constexpr char kQuickstart[] = MACAW_SOURCE_DIR "/examples/mnist10k.toml";

Printed Rehearse(const std::string& arguments) {
  return RunProgram(MACAW_SOURCE_DIR "/deploy/fleet.sh",
                    absl::StrCat("--bin ", MACAW_BIN_DIR, " ", arguments));
}

Printed Macaw(const std::string& arguments) {
  return RunProgram(MACAW_BIN_DIR "/macaw", arguments);
}

Printed Worker(const std::string& arguments) {
  return RunProgram(MACAW_BIN_DIR "/macaw-worker", arguments);
}

// The command lines of the processes that have `text` in theirs.
std::string ProcessesThatName(const std::string& text) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string folder = entry.path().string();
    if (!absl::ascii_isdigit(static_cast<unsigned char>(folder.back()))) continue;
    const absl::StatusOr<std::string> line = ReadFile(folder + "/cmdline");
    if (line.ok() && absl::StrContains(*line, text)) absl::StrAppend(&found, *line, "\n");
  }
  return found;
}

// A device is killed and enrols again in the middle; the script compares the models.
TEST(Fleet, OfDevicesOverTlsEndsWithTheModelOfTheSimulation) {
  const TemporaryFolder folder;
  const Printed printed =
      Rehearse(absl::StrCat("--devices 8 --rounds 8 --lifetime 3s --keep ", folder.path()));
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("\nsame\n"));
  // Nobody is left over: each device has heard that the run is over, or was stopped.
  EXPECT_EQ(ProcessesThatName(folder.path()), "");
  // Certificates of three seconds were renewed under the run.
  EXPECT_THAT(*ReadFile(folder / "authority/registry.jsonl"), HasSubstr("\"renewed\""));
  const Printed list = Macaw("pki list --json --dir " + folder / "authority");
  EXPECT_THAT(list.text, HasSubstr("\"name\": \"device-7\""));
  EXPECT_THAT(*ReadFile(folder / "server.toml"), Not(HasSubstr("path")));
  // The log of the fleet is enough to simulate its run again.
  const std::string replay =
      absl::StrCat("replay ", folder / "run", " --out ", folder / "replayed");
  const Printed without = Macaw(replay);
  EXPECT_EQ(without.exit, 2) << without.text;
  EXPECT_THAT(without.text, HasSubstr("--config"));
  const Printed same = Macaw(
      absl::StrCat(replay, " --config ", kQuickstart,
                   " --set partition.clients=8 --set cohort.size=4 --set evaluation.every=1"));
  EXPECT_EQ(same.exit, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("same       8 rounds, and the same model: "));
}

// The configuration of a small model on a table, whose runs take seconds.
std::string WriteTableFleet(const TemporaryFolder& folder, const std::string& more = "") {
  testing_support::WriteTableRun(folder);
  return folder.Write("fleet.toml", absl::StrCat(R"(
run.name = "fleet"
run.seed = 3
cohort.size = 3
data.source = "csv"
data.path = "rows.csv"
partition.scheme = "iid"
partition.clients = 5
model.layers = ["linear 4", "relu", "linear 3"]
local.epochs = 1
local.batch_size = 8
)",
                                                 more));
}
// Rounds enough that the device which is killed is drawn again before the run is over.
constexpr char kTableFleet[] = "--devices 5 --rounds 40 --config ";

TEST(Fleet, KeepsTheStatesOfScaffoldOnTheDevices) {
  const TemporaryFolder folder;
  const Printed printed =
      Rehearse(absl::StrCat(kTableFleet, WriteTableFleet(folder), " --algorithm scaffold"));
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, Not(HasSubstr("none")));  // there are digests of states, too
}

TEST(Fleet, KeepsTheRestsOfACodecOnTheDevices) {
  const TemporaryFolder folder;
  const std::string config = folder.Write(
      "job.toml",
      absl::StrCat(
          absl::StrReplaceAll(*ReadFile(kQuickstart),
                              {{"\"data/", absl::StrCat("\"", MACAW_SOURCE_DIR, "/examples/data/")},
                               {"\"lenet5\"", "\"logistic\""}}),
          "\n[update]\ncodec = [\"topk 0.1\", \"bits 8\"]\nfeedback = \"ef21\"\n"));
  // Rounds enough that the device which is killed is drawn again before the run is over.
  const Printed printed = Rehearse("--devices 4 --rounds 60 --config " + config);
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, Not(HasSubstr("none")));  // there are digests of states, too
}

// What a rule asks of devices: a model of each client's own, LibTorch, a width by the client's
// number, several models, and rounds of two phases.
struct Fitted {
  const char* name;
  std::string parameters = {};
  bool on_libtorch = false;
};
void PrintTo(const Fitted& rule, std::ostream* out) { *out << rule.name; }

class FleetOfARule : public testing::TestWithParam<Fitted> {};

TEST_P(FleetOfARule, EndsWithTheModelOfTheSimulation) {
  if (GetParam().on_libtorch) MACAW_NEEDS_LIBTORCH();
  const TemporaryFolder folder;
  const Printed printed =
      Rehearse(absl::StrCat(kTableFleet, WriteTableFleet(folder, GetParam().parameters),
                            " --algorithm ", GetParam().name));
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("\nsame\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Of, FleetOfARule,
    testing::Values(Fitted{"fedper"}, Fitted{"pfedme", "algorithm.pfedme.lambda = 5\n", true},
                    Fitted{"heterofl", "algorithm.heterofl.rates = \"1 0.5\"\n"}, Fitted{"ifca"},
                    Fitted{"term"}),
    [](const auto& info) { return std::string(info.param.name); });

// The frozen tensors go to each device once, also to the one that is killed and starts again: it
// has them on its disk.
TEST(Fleet, KeepsFrozenTensorsOnTheDevices) {
  const TemporaryFolder folder;
  const Printed printed =
      Rehearse(absl::StrCat(kTableFleet, WriteTableFleet(folder, "model.frozen = [\"0.*\"]\n"),
                            " --keep ", folder / "home"));
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("\nsame\n"));
  for (int device = 0; device <= 5; ++device) {
    const std::string log = *ReadFile(absl::StrCat(folder / "home/device-", device, "/log"));
    const std::vector<absl::string_view> around = absl::StrSplit(log, "base_fetched");
    EXPECT_EQ(around.size() - 1, 1u) << "device " << device << "\n" << log;
  }
}

// Groups are by the names of the devices' clients, which the server learns as they join. The rows
// of a group are on several devices.
TEST(Fleet, HasTheGroupsOfTheSimulation) {
  const TemporaryFolder folder;
  folder.Write("groups.csv", "client,group\n0,few\n3,few\n");
  const std::string config = folder.Write(
      "job.toml",
      absl::StrReplaceAll(*ReadFile(kQuickstart),
                          {{"\"data/", absl::StrCat("\"", MACAW_SOURCE_DIR, "/examples/data/")},
                           {"\"lenet5\"", "\"logistic\""},
                           {"[partition]", "client_test_fraction = 0.2\n[partition]"},
                           {"[evaluation]",
                            "[evaluation]\nclients = true\nmetrics = [\"f1\", \"ece\"]\n"
                            "groups = [\"@groups.csv\", \"others=*\"]"}}));
  const Printed printed = Rehearse(
      absl::StrCat("--devices 6 --rounds 12 --config ", config, " --keep ", folder / "home"));
  ASSERT_EQ(printed.exit, 0) << printed.text;
  const auto last_row = [&](const std::string& run) {
    const std::string text = *ReadFile(absl::StrCat(folder / "home/", run, "/metrics.jsonl"));
    const std::vector<std::string> rows = absl::StrSplit(text, '\n', absl::SkipEmpty());
    return Json::parse(rows.back());
  };
  const Json fleet = last_row("run"), simulated = last_row("simulated");
  EXPECT_EQ(fleet["clients_test_group_few_clients"], 2);
  EXPECT_EQ(fleet["clients_test_group_others_clients"], 4);
  for (const char* column :
       {"group_few_accuracy", "group_few_f1", "group_few_ece", "group_others_loss",
        "group_others_f1", "worst_group_accuracy", "worst_group_f1", "group_gap_ece"}) {
    const std::string name = absl::StrCat("clients_test_", column);
    ASSERT_TRUE(fleet.contains(name) && fleet[name].is_number()) << name;
    EXPECT_EQ(fleet[name], simulated[name]) << name;
  }
}

TEST(Fleet, AServersFileNeedsNoData) {
  const TemporaryFolder folder;
  const std::string plan = folder / "the server.toml", word = absl::StrCat("'", plan, "'");
  const Printed written = Macaw(absl::StrCat("plan ", kQuickstart, " --out ", word));
  ASSERT_EQ(written.exit, 0) << written.text;
  EXPECT_THAT(written.text, HasSubstr("macaw-server --config " + word)) << "it can be copied";
  const std::string text = *ReadFile(plan);
  EXPECT_THAT(text, HasSubstr("input_shape = [1, 28, 28]"));
  EXPECT_THAT(text, HasSubstr("clients = 1000"));
  EXPECT_THAT(text, Not(HasSubstr("source =")));
  EXPECT_THAT(Macaw(absl::StrCat("plan ", kQuickstart, " --out ", word)).text,
              HasSubstr("exists already"));
  // There is nothing to simulate in it.
  EXPECT_NE(Macaw(absl::StrCat("simulate ", word, " --check")).exit, 0);
}

TEST(Fleet, ShardsAreTheClientsOfADataSet) {
  const TemporaryFolder folder;
  const std::string out = folder / "shards";
  const std::string command =
      absl::StrCat("data shards ", kQuickstart, " --set partition.clients=5 --out ", out);
  const Printed written = Macaw(command);
  ASSERT_EQ(written.exit, 0) << written.text;
  EXPECT_THAT(written.text, HasSubstr("5 files"));
  EXPECT_THAT(Macaw(absl::StrCat("data info ", out, "/4.safetensors")).text,
              testing::ContainsRegex("clients +1\n"));
  EXPECT_THAT(Macaw(command).text, HasSubstr("exists already"));
}

TEST(Fleet, ShardsAreAllOfOneDivisionOrNone) {
  const TemporaryFolder folder;
  const std::string out = folder / "shards";
  const auto shards = [&](const std::string& other, const std::string& option) {
    const std::string table = folder.Write(
        "table.csv",
        absl::StrCat("user,x,y\nanna,1,0\nanna,2,1\n", other, ",3,0\n", other, ",4,1\n"));
    return Macaw(absl::StrCat("data shards ", table, " --set data.client_column='\"user\"' --set ",
                              "data.test_fraction=0 --out ", out, option));
  };
  const Printed refused = shards("b/c", "");
  EXPECT_EQ(refused.exit, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("a file cannot be named like client \"b/c\""));
  EXPECT_FALSE(FileExists(out)) << "half a division";
  ASSERT_EQ(shards("bob", "").exit, 0) << shards("bob", "").text;
  folder.Write("shards/notes.txt", "mine");
  EXPECT_EQ(shards("bob", " --force").exit, 0) << "the same division";
  const Printed other = shards("carl", " --force");
  EXPECT_EQ(other.exit, 2);
  EXPECT_THAT(other.text, HasSubstr("has bob.safetensors, which is of no client of this division"));
  EXPECT_FALSE(FileExists(out + "/carl.safetensors"));
  std::filesystem::remove(out + "/bob.safetensors");
  EXPECT_EQ(shards("carl", " --force").exit, 0);
  EXPECT_TRUE(FileExists(out + "/carl.safetensors") && FileExists(out + "/notes.txt"));
}

TEST(Fleet, CheckSaysWhatANodeBringsAndWhetherItMayWorkNow) {
  const TemporaryFolder folder;
  folder.Write("rows.csv", "x,y,kind\n1,2,cat\n3,4,dog\n5,six,cat\n7,8,dog\n");
  const std::string node =
      folder.Write("node.toml",
                   "[node]\nserver = \"127.0.0.1:1\"\nowner = true\n"
                   "[data]\nsource = \"csv\"\npath = \"rows.csv\"\nunreadable_rows = 0.25\n"
                   "test_fraction = 0\n[partition]\nclients = 1\n"
                   "[accept]\nrun_when = \"false\"\n");
  const Printed printed = Worker("check --config " + node);
  EXPECT_EQ(printed.exit, 0) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("1 of 4 rows cannot be read and are left out"));
  EXPECT_THAT(printed.text, HasSubstr("rows.csv line 4"));
  EXPECT_THAT(printed.text, HasSubstr("bytes down"));
  EXPECT_THAT(printed.text, HasSubstr("it does not work: accept.run_when says no (exit code 1)"));
}

class Pki : public testing::Test {
 protected:
  Pki() { EXPECT_EQ(Macaw("pki init --dir " + authority_).exit, 0); }
  const TemporaryFolder folder_;
  const std::string authority_ = folder_ / "authority";
};

TEST_F(Pki, SaysWhatIsWrongWithACommand) {
  const std::string in = " --dir " + authority_;
  EXPECT_THAT(Macaw("pki init" + in).text, HasSubstr("holds an authority already"));
  EXPECT_THAT(Macaw("pki invite a/b" + in).text, HasSubstr("is no name for a node"));
  EXPECT_THAT(Macaw("pki invite a --role king" + in).text, HasSubstr("\"king\" is no role"));
  EXPECT_THAT(Macaw("pki invite a --open-for soon" + in).text, HasSubstr("as in 90s, 30m"));
  EXPECT_THAT(Macaw("pki revoke nobody" + in).text, HasSubstr("was ever invited"));
  EXPECT_THAT(Macaw("pki list --dir /nowhere").text, HasSubstr("macaw pki init --dir /nowhere"));
}

// As a spreadsheet may have them.
TEST_F(Pki, TakesWholeNamesOfClientsAndRefusesThoseThatNoServerTakes) {
  const std::string in = " --dir " + authority_;
  EXPECT_EQ(Macaw("pki invite a --clients x,y --client 'a b, \"c\"' --client z" + in).exit, 0);
  EXPECT_THAT(Macaw("pki list --json" + in).text,
              AllOf(HasSubstr("\"x\""), HasSubstr("\"y\""), HasSubstr("\"z\""),
                    HasSubstr(R"("a b, \"c\"")")));
  const Printed none = Macaw("pki assign a" + in);
  EXPECT_NE(none.exit, 0);
  EXPECT_THAT(none.text, HasSubstr("--client"));
  for (const std::string& name : {std::string(129, 'x'), std::string("b\an")}) {
    for (const char* option : {"--client", "--clients"}) {
      const Printed printed = Macaw(absl::StrCat("pki invite c ", option, " '", name, "'", in));
      EXPECT_NE(printed.exit, 0) << printed.text;
      EXPECT_THAT(printed.text, HasSubstr("1 to 128 bytes without control characters"));
    }
  }
  EXPECT_THAT(Macaw("pki list" + in).text, Not(HasSubstr("\nc ")));
}

TEST_F(Pki, RefusesClientsThatNobodyMeant) {
  const std::string in = " --dir " + authority_;
  const std::pair<const char*, const char*> refused[] = {
      {"invite n --clients '7, 8'", "the client \" 8\" has blanks around its name"},
      {"invite n --clients 7,7", "the client \"7\" is named twice"},
      {"invite n --clients 7 --client 7", "the client \"7\" is named twice"},
      {"invite n --role operator --clients 3", "an operator owns no clients"},
      {"invite n --clients '*,a'", "* is every client: name it alone"},
      {"assign a --clients '7,8 '", "the client \"8 \" has blanks around its name"}};
  for (const auto& [command, why] : refused) {
    const Printed printed = Macaw(absl::StrCat("pki ", command, in));
    EXPECT_EQ(printed.exit, 2) << command;
    EXPECT_THAT(printed.text, HasSubstr(why)) << command;
  }
  EXPECT_EQ(Macaw("pki invite n --role operator" + in).exit, 0);
  EXPECT_EQ(Macaw("pki invite m --client ' 8'" + in).exit, 0) << "its name may be so";
}

// The worker would end with the same words at its start.
TEST(Fleet, CheckRefusesNamesOfClientsThatNoServerTakes) {
  const TemporaryFolder folder;
  const std::string node =
      folder.Write("node.toml",
                   "[node]\nowner = true\n[data]\nsource = \"csv\"\npath = \"rows.csv\"\n"
                   "client_column = \"user\"\n[local]\nlr = 3.0\n");
  const auto check = [&](const std::string& name) {
    std::string rows = "user,a,b,label\n";
    for (const char* row : {",1,2,x\n", ",2,1,y\n", ",3,4,x\n"}) absl::StrAppend(&rows, name, row);
    folder.Write("rows.csv", rows);
    return Worker("check --config " + node);
  };
  const Printed ready = check("ben");
  EXPECT_EQ(ready.exit, 0) << ready.text;
  EXPECT_THAT(ready.text, AllOf(HasSubstr("[local]"), HasSubstr("the server's file decides")));
  for (const std::string& name : {std::string(129, 'x'), std::string("b\an")}) {
    const Printed printed = check(name);
    EXPECT_EQ(printed.exit, 2) << printed.text;
    EXPECT_THAT(printed.text, AllOf(HasSubstr("1 to 128 bytes without control characters"),
                                    Not(HasSubstr("ready"))));
  }
}

TEST_F(Pki, AChangedRegistryIsNoticed) {
  ASSERT_EQ(Macaw("pki invite phone-7 --dir " + authority_).exit, 0);
  ASSERT_EQ(Macaw("pki invite phone-8 --dir " + authority_).exit, 0);
  EXPECT_THAT(Macaw("audit verify " + authority_).text, HasSubstr("2 lines, unbroken"));
  const std::string registry = authority_ + "/registry.jsonl";
  const std::string changed =
      absl::StrReplaceAll(*ReadFile(registry), {{"\"phone-7\"", "\"phone-6\""}});
  ASSERT_TRUE(AtomicWriteFile(registry, changed).ok());
  const Printed printed = Macaw("audit verify " + authority_);
  EXPECT_NE(printed.exit, 0);
  EXPECT_THAT(printed.text, HasSubstr("line 2: does not follow from the line before it"));
}

TEST_F(Pki, AChangedOrMissingLastLineIsNoticed) {
  ASSERT_EQ(Macaw("pki invite phone-7 --dir " + authority_).exit, 0);
  ASSERT_EQ(Macaw("pki revoke phone-7 --why lost --dir " + authority_).exit, 0);
  EXPECT_THAT(Macaw("audit verify " + authority_).text, HasSubstr("2 of them signed"));
  const std::string registry = authority_ + "/registry.jsonl", text = *ReadFile(registry);
  ASSERT_TRUE(AtomicWriteFile(registry, absl::StrReplaceAll(text, {{"lost", "last"}})).ok());
  Printed printed = Macaw("audit verify " + authority_);
  EXPECT_NE(printed.exit, 0);
  EXPECT_THAT(printed.text, HasSubstr("line 2: is not the line that was signed"));
  ASSERT_TRUE(AtomicWriteFile(registry, text.substr(0, text.find('\n') + 1)).ok());
  printed = Macaw("audit verify " + authority_);
  EXPECT_NE(printed.exit, 0);
  EXPECT_THAT(printed.text, HasSubstr("lines were cut off its end"));
}

TEST_F(Pki, AMissingLogOrHeadIsNoticed) {
  ASSERT_EQ(Macaw("pki invite phone-7 --dir " + authority_).exit, 0);
  std::filesystem::rename(authority_ + "/registry.jsonl.head", folder_ / "head");
  Printed printed = Macaw("audit verify " + authority_);
  EXPECT_NE(printed.exit, 0);
  EXPECT_THAT(printed.text, HasSubstr("its signed head"));
  std::filesystem::rename(folder_ / "head", authority_ + "/registry.jsonl.head");
  EXPECT_EQ(Macaw("audit verify " + authority_).exit, 0);
  folder_.Write("authority/audit.jsonl.head", "{}");
  printed = Macaw("audit verify " + authority_);
  EXPECT_NE(printed.exit, 0);
  EXPECT_THAT(printed.text, HasSubstr("there is no " + authority_ + "/audit.jsonl"));
}

TEST_F(Pki, IsBackedUpAndRestored) {
  ASSERT_EQ(Macaw("pki invite phone-7 --dir " + authority_).exit, 0);
  const std::string backup = folder_ / "backup";
  EXPECT_THAT(Macaw("pki backup " + backup + " --dir " + authority_).text, HasSubstr("1 node"));
  std::filesystem::remove(authority_ + "/registry.jsonl");
  EXPECT_THAT(Macaw("pki list --dir " + authority_).text, HasSubstr("macaw pki restore"));
  const Printed restored = Macaw("pki restore " + backup + " --dir " + authority_);
  EXPECT_EQ(restored.exit, 0) << restored.text;
  EXPECT_THAT(Macaw("pki list --dir " + authority_).text, HasSubstr("phone-7"));
  EXPECT_EQ(Macaw("audit verify " + authority_).exit, 0);
}

TEST_F(Pki, AWorkerSaysWhatIsWrongWithItsIdentity) {
  const std::string node =
      folder_.Write("node.toml",
                    "[node]\nserver = \"127.0.0.1:1\"\nidentity = \"identity\"\n"
                    "[data]\nsource = \"synthetic\"\nsynthetic.clients = 3\n");
  EXPECT_THAT(Worker("--config " + node).text, HasSubstr("has not enrolled yet"));
  EXPECT_THAT(
      Worker("enrol --server 127.0.0.1:1 --identity " + folder_ / "identity" + " MACAW-77").text,
      HasSubstr("the invite is incomplete"));
  EXPECT_THAT(Worker("enrol --server 127.0.0.1:1 --identity " + folder_ / "identity" + " ''").text,
              HasSubstr("the invite is incomplete"));
}

}  // namespace
}  // namespace macaw
