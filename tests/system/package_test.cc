// The packages of deploy/README.md on a machine that is not the one that built them: their trees
// are installed in one folder and moved to another. Without LibTorch: thin_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/program.h"
#include "testing/public_data.h"
#include "testing/temporary_folder.h"
#include "tests/system/installed.h"
#include "tests/system/libtorch.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;
using testing_support::Printed;
using testing_support::RunProgram;
using testing_support::Simulation;
using testing_support::TemporaryFolder;

class Package : public testing::Test {
 protected:
  void HoldsComponents(const std::vector<std::string>& components) {
    testing_support::Install(components, folder_ / "first");
    fs::rename(folder_ / "first", root_);
  }
  Printed Macaw(const std::string& arguments) {
    return RunProgram(root_ + "/bin/macaw", arguments);
  }

  const TemporaryFolder folder_;
  const std::string root_ = folder_ / "moved";
};

TEST_F(Package, OfTheProgramsRunsAndResumesAnywhere) {
  HoldsComponents(testing_support::kPrograms);
  const Printed doctor = Macaw("doctor");
  EXPECT_EQ(doctor.exit, 0) << doctor.text;
  EXPECT_THAT(doctor.text, HasSubstr("fused: macaw-fused"));

  const std::string quickstart = root_ + "/share/doc/macaw/examples/quickstart.toml";
  const std::string small = " --set cohort.size=10 --set local.epochs=1";
  const std::string out = folder_ / "run";
  const Printed run =
      Macaw(absl::StrCat("simulate ", quickstart, small, " --rounds 2 --out ", out));
  ASSERT_EQ(run.exit, 0) << run.text;
  const Printed resumed = Macaw(absl::StrCat("simulate --resume ", out, " --rounds 3"));
  ASSERT_EQ(resumed.exit, 0) << resumed.text;

  Simulation built("built", {MACAW_SOURCE_DIR "/examples/quickstart.toml", "--set",
                             "cohort.size=10", "--set", "local.epochs=1", "--rounds", "3"});
  ASSERT_EQ(built.Wait(), 0) << built.output();
  const auto summary = nlohmann::json::parse(*ReadFile(out + "/summary.json"));
  EXPECT_EQ(summary["model_digest"], built.digest());
}

TEST_F(Package, OfTheLibTorchBackEndNeedsNothingBesideIt) {
  MACAW_NEEDS_LIBTORCH();
  HoldsComponents({"command", "server", "worker", "torch", "libtorch"});
  const Printed needed = RunProgram("ldd", root_ + "/lib/macaw/libmacaw_torch.so");
  ASSERT_EQ(needed.exit, 0) << needed.text;
  for (const char* library :
       {"libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}) {
    EXPECT_THAT(needed.text, HasSubstr(absl::StrCat(library, " => ", root_, "/lib/macaw/")));
  }
  const Printed run = Macaw(absl::StrCat(
      "simulate ", root_, "/share/doc/macaw/examples/convex.toml --rounds 2 --set data.path=",
      testing_support::PublicData("a9a.gz"), " --out ", folder_ / "run"));
  EXPECT_EQ(run.exit, 0) << run.text;
}

TEST_F(Package, OfADeviceHoldsTheWorkerAlone) {
  HoldsComponents({"worker"});
  EXPECT_TRUE(fs::exists(root_ + "/bin/macaw-worker"));
  EXPECT_FALSE(fs::exists(root_ + "/bin/macaw-server"));
  EXPECT_FALSE(fs::exists(root_ + "/bin/macaw"));
  EXPECT_TRUE(fs::exists(root_ + "/share/macaw/macaw_client.py"));  // for a program of the owner's
  EXPECT_EQ(RunProgram(root_ + "/bin/macaw-worker", "--doctor").exit, 0);
}

// A unit's program as it lies here, and an instance's name in place of the template's.
std::string UnitFor(const std::string& root, const std::string& unit, const std::string& to) {
  std::string text = *ReadFile(root + "/lib/systemd/system/" + unit);
  text = absl::StrReplaceAll(text, {{"=/usr/bin/", absl::StrCat("=", root, "/bin/")}});
  EXPECT_TRUE(AtomicWriteFile(to, text).ok());
  return to;
}

TEST_F(Package, OfAServiceHasAUnitThatSystemdReads) {
  HoldsComponents({"server", "worker"});
  const std::string server =
      UnitFor(root_, "macaw-server@.service", folder_ / "macaw-server@run.service");
  const std::string worker =
      UnitFor(root_, "macaw-worker.service", folder_ / "macaw-worker.service");
  // What they start must understand its arguments.
  for (const std::string option : {"--resume-if-begun", "--config", "--run-dir", "--authority"}) {
    EXPECT_THAT(*ReadFile(server), HasSubstr(option + " "));
    EXPECT_THAT(RunProgram(root_ + "/bin/macaw-server", "--help").text, HasSubstr(option));
  }
  if (RunProgram("command", "-v systemd-analyze").exit != 0) {
    GTEST_SKIP() << "systemd-analyze is not installed";
  }
  for (const std::string& unit : {server, worker}) {
    const Printed verified = RunProgram("systemd-analyze", "verify --man=no " + unit);
    EXPECT_EQ(verified.exit, 0);
    EXPECT_EQ(verified.text, "") << "a warning is a key that has no effect";
    const Printed open =
        RunProgram("systemd-analyze", "security --offline=yes --threshold=20 " + unit);
    EXPECT_EQ(open.exit, 0) << "exposed more than 2.0 of 10:\n" << open.text;
  }
}

// A plan that an administrator copies and changes.
TEST_F(Package, OfTheServerHasAPlanThatItRuns) {
  HoldsComponents({"server"});
  const std::string plan = *ReadFile(root_ + "/share/doc/macaw-server/run.toml");
  const std::string here =
      folder_.Write("run.toml", absl::StrReplaceAll(plan, {{"0.0.0.0:47100", "127.0.0.1:0"}}));
  testing_support::Program server(
      "macaw-server", {"--resume-if-begun", "--config", here, "--run-dir", folder_ / "run"});
  EXPECT_TRUE(server.WaitFor("listening on 127.0.0.1:")) << server.text();
}

TEST_F(Package, NamesNoFolderOfTheMachineThatBuiltIt) {
  MACAW_NEEDS_LIBTORCH();
  HoldsComponents({"command", "server", "worker", "torch", "sdk"});
  // As a path of its own, and not as the end of a longer one such as include/macaw.
  const Printed named = RunProgram(
      "grep", absl::StrCat("-rlaE '(^|[^A-Za-z0-9_./-])(", MACAW_SOURCE_DIR, "|",
                           fs::path(MACAW_BIN_DIR).parent_path().string(), ")/' ", root_));
  EXPECT_EQ(named.text, "");
  EXPECT_EQ(named.exit, 1) << "grep found no line";

  int objects = 0;
  for (const auto& file : fs::recursive_directory_iterator(root_)) {
    if (!file.is_regular_file()) continue;
    const std::string path = file.path().string();
    if (!absl::StartsWith(*ReadFile(path), "\177ELF")) continue;
    ++objects;
    const Printed dynamic = RunProgram("readelf", "-dW " + path);
    ASSERT_EQ(dynamic.exit, 0) << dynamic.text;
    for (const absl::string_view line : absl::StrSplit(dynamic.text, '\n')) {
      if (!absl::StrContains(line, "(RUNPATH)") && !absl::StrContains(line, "(RPATH)")) continue;
      const std::vector<std::string> parts = absl::StrSplit(line, absl::ByAnyChar("[]"));
      const std::vector<std::string> folders = absl::StrSplit(parts.at(1), ':');
      EXPECT_THAT(folders, Each(StartsWith("$ORIGIN"))) << path;
    }
  }
  EXPECT_EQ(objects, 6) << "four programs, the back end, and the library for tests of plug-ins";
}

}  // namespace
}  // namespace macaw
