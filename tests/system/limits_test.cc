// Runs under small limits of the system end with one line that says which limit it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "testing/small_disk.h"
#include "testing/temporary_folder.h"
#include "tests/system/simulation.h"

namespace macaw {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::Printed;
using testing_support::RunShell;

TEST(SmallLimits, NineOpenFilesAreRefusedInOneLineBeforeAnythingIsMade) {
  const testing_support::TemporaryFolder folder;
  const std::string run = folder / "run";
  const std::string config = testing_support::WriteConfig("limits");
  for (const std::string& command :
       {"macaw simulate " + config + " --out " + run,
        "macaw-server --config " + config + " --run-dir " + run,
        "macaw-worker --config " + config + " --server unix:/nowhere"}) {
    const Printed printed = RunShell("ulimit -n 9; " MACAW_BIN_DIR "/" + command);
    EXPECT_EQ(printed.exit, command.starts_with("macaw-worker") ? 4 : 1) << command;
    EXPECT_THAT(printed.text,
                AllOf(HasSubstr(": error: "), HasSubstr("9 files open"), HasSubstr("ulimit -n")));
    EXPECT_EQ(std::ranges::count(printed.text, '\n'), 1) << printed.text;
    EXPECT_FALSE(std::filesystem::exists(run)) << command;
  }
}

// The model and the results fit, the checkpoint behind them does not.
TEST(SmallLimits, AFullDiskAfterTheResultCostsTheLastCheckpointAndNotTheRun) {
  const testing_support::SmallDisk disk(1400 << 10);
  if (!disk.mounted()) GTEST_SKIP() << disk.why();
  testing_support::Simulation run(
      "full",
      {"--set", "data.source=synthetic", "--set", "data.synthetic.clients=20", "--set",
       "model.layers=[\"linear 3000\", \"relu\", \"linear 10\"]", "--set", "cohort.size=2", "--set",
       "data.synthetic.max_size=30", "--rounds", "2", "--out", disk.path() + "/run"});
  EXPECT_EQ(run.Wait(), 0) << run.output();
  EXPECT_THAT(run.output(), AllOf(HasSubstr("warning: the result in "), HasSubstr("is whole"),
                                  HasSubstr("/run/checkpoints"), HasSubstr("No space left"),
                                  HasSubstr("done       2 rounds")));
  EXPECT_EQ(run.summary().value("end", ""), "finished");
  EXPECT_FALSE(run.digest().empty());
}

}  // namespace
}  // namespace macaw
