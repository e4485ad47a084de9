// What the folder of a sweep keeps, and what it accepts when the sweep goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/sweep/folder.h"
#include "cli/sweep/prepare.h"
#include "core/files.h"
#include "testing/temporary_folder.h"
#include "tests/cli/sweep_plan_fixture.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SweepFolderTest = SweepPlanTest;

TEST_F(SweepFolderTest, APlanIsReadBackAsItWas) {
  const PreparedSweep sweep = Sweep(R"(
seeds = [1, 2]
metric = "train_loss"
halving = {rounds = [5, 10], factor = 2}
[keys]
algorithm = [{name = "fedavg"}, {name = "fedprox", fedprox.mu = 0.5}]
)");
  const absl::StatusOr<SweepPlan> plan = ParsePlan(JsonOf(sweep.plan), "sweep.json");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(JsonOf(*plan), JsonOf(sweep.plan));
  EXPECT_THAT(std::string(ParsePlan("{}", "d/sweep.json").status().message()),
              HasSubstr("d/sweep.json"));
}

TEST_F(SweepFolderTest, AFolderTakesFurtherSeedsAndNoOtherConfiguration) {
  const SweepFolder folder(folder_ / "out");
  const std::string keys = "[keys]\nlocal.lr = [0.1, 0.2]\n";
  ASSERT_TRUE(folder.Write(Sweep("seeds = [1]\n" + keys)).ok());
  EXPECT_TRUE(folder.Write(Sweep("seeds = [1]\n" + keys)).ok());
  EXPECT_TRUE(folder.Write(Sweep("seeds = [1, 2]\nmetric = \"test_loss\"\n" + keys)).ok());
  const absl::Status other = folder.Write(Sweep("seeds = [1]\n[keys]\nlocal.lr = [0.1, 0.3]\n"));
  EXPECT_THAT(std::string(other.message()),
              AllOf(HasSubstr("configuration 002"), HasSubstr("local.lr 0.2 there, 0.3 here")));
  // The configurations are compared, not the files of jobs: other seeds make no other sweep.
  EXPECT_FALSE(folder.Write(Sweep("seeds = [7]\n[keys]\nlocal.lr = [0.1, 0.3]\n")).ok());
  EXPECT_TRUE(folder
                  .Write(Sweep("seeds = [1]\n[keys]\nlocal.lr = [0.1, 0.2]\n"
                               "workers.slots = [2]\n"))
                  .ok())
      << "how it is computed may change";
  const absl::Status halved = folder.Write(Sweep("seeds = [1]\nhalving.rounds = [5, 20]\n" + keys));
  EXPECT_THAT(std::string(halved.message()), HasSubstr("[halving]"));
}

TEST_F(SweepFolderTest, AFolderTakesFurtherConfigurationsAndRemembersThoseThatAreLeftOut) {
  const SweepFolder folder(folder_ / "out");
  const auto with = [&](const std::string& rates) {
    return Sweep("seeds = [1]\n[keys]\nlocal.lr = [" + rates + "]\n");
  };
  ASSERT_TRUE(folder.Write(with("0.1, 0.2")).ok());
  const PreparedSweep more = with("0.1, 0.2, 0.5");
  ASSERT_TRUE(folder.Write(more).ok());
  EXPECT_EQ(*folder.CountLeftOut(), 0u);
  EXPECT_EQ(JsonOf(*folder.ReadPlan()), JsonOf(more.plan)) << "as in a fresh folder";
  for (const char* job : {"001-seed1", "002-seed1"})
    ASSERT_TRUE(folder.WriteResult(job, {.rungs = {{20, {{"test_loss", 0.5}}}}, .why = ""}).ok());
  ASSERT_TRUE(folder.WriteResult("003-seed1", {.failed = true, .why = "the disk is full"}).ok());
  const PreparedSweep fewer = with("0.1");
  ASSERT_TRUE(folder.Write(fewer).ok());
  EXPECT_EQ(*folder.CountLeftOut(), 1u) << "003 is not finished";
  EXPECT_EQ(folder.ReadPlan()->configurations.size(), 1u);
  EXPECT_EQ(folder.ReadPlan()->earlier.size(), 2u);
  ASSERT_TRUE(folder.Write(fewer).ok());
  EXPECT_EQ(*folder.CountLeftOut(), 1u) << "also the second time";
  // The result of 0.2 does not become that of another rate.
  EXPECT_THAT(std::string(folder.Write(with("0.1, 0.3")).message()),
              AllOf(HasSubstr("configuration 002"), HasSubstr("local.lr 0.2 there, 0.3 here")));
  ASSERT_TRUE(folder.Write(more).ok());
  EXPECT_EQ(*folder.CountLeftOut(), 0u);
  EXPECT_EQ(JsonOf(*folder.ReadPlan()), JsonOf(more.plan));
}

TEST_F(SweepFolderTest, AFolderThatHoldsSomethingElseIsLeftAlone) {
  const std::string keys = "seeds = [1]\n[keys]\nlocal.lr = [0.1, 0.2]\n";
  const SweepFolder with_table(folder_ / "with-table");
  const std::string table = folder_.Write("with-table/table.csv", "mine\n");
  EXPECT_THAT(std::string(with_table.Write(Sweep(keys)).message()),
              AllOf(HasSubstr("holds no sweep, and has a table.csv"), HasSubstr("--out")));
  EXPECT_EQ(*ReadFile(table), "mine\n");
  folder_.Write("run/config.toml", "");
  EXPECT_THAT(std::string(SweepFolder(folder_ / "run").Write(Sweep(keys)).message()),
              HasSubstr("holds a run"));
  // The sweep's own file, and that of its normalisation, may lie there.
  folder_.Write("own/sweep.toml", keys);
  EXPECT_TRUE(SweepFolder(folder_ / "own").Write(Sweep(keys)).ok());
}

TEST_F(SweepFolderTest, AFolderTakesNoFileThatHasChanged) {
  const std::string rows = folder_.Write("rows.csv", "a,y\n1,0\n2,1\n3,0\n4,1\n");
  folder_.Write("csv.toml",
                "[data]\nsource = \"csv\"\npath = \"rows.csv\"\ntest_fraction = 0\n"
                "[partition]\nclients = 2\n[model]\nname = \"logistic\"\n[cohort]\nsize = 2\n"
                "[run]\nrounds = 2\n");
  const SweepFolder folder(folder_ / "changed");
  const std::string text =
      "base = \"csv.toml\"\nmetric = \"train_loss\"\nseeds = [1]\n"
      "[keys]\nlocal.lr = [0.1, 0.2]\n";
  const auto write = [&] {
    const absl::StatusOr<PreparedSweep> sweep = Read(text);
    return sweep.ok() ? folder.Write(*sweep) : sweep.status();
  };
  ASSERT_TRUE(write().ok()) << write();
  EXPECT_TRUE(write().ok()) << write();
  folder_.Write("rows.csv", "a,y\n1,0\n2,1\n3,0\n4,0\n");
  EXPECT_THAT(std::string(write().message()),
              AllOf(HasSubstr("data.path"), HasSubstr("has changed")));
  folder_.Write("rows.csv", "a,y\n1,0\n2,1\n3,0\n4,1\n");
  EXPECT_TRUE(write().ok()) << write();
}

TEST_F(SweepFolderTest, AFolderKeepsWhatBecameOfAJob) {
  const SweepFolder folder(folder_ / "out");
  const PreparedSweep sweep = Sweep("seeds = [1, 2]\n");
  ASSERT_TRUE(folder.Write(sweep).ok());
  JobResult result;
  result.rungs[5]["test_loss"] = 0.1 + 0.2;
  result.failed = true;
  result.accuracy = "val_accuracy";
  result.why = "the disk \"\xff\" is full";
  ASSERT_TRUE(folder.WriteResult("001-seed1", result).ok());
  const auto results = ReadResults(folder, sweep.plan);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->at("001-seed1").rungs, result.rungs);
  EXPECT_TRUE(results->at("001-seed1").failed);
  EXPECT_EQ(results->at("001-seed1").accuracy, "val_accuracy");
  EXPECT_EQ(results->at("001-seed2").accuracy, "");
  EXPECT_TRUE(results->at("001-seed2").rungs.empty());
  ASSERT_TRUE(folder.ForgetFailed(sweep.plan).ok());
  EXPECT_FALSE(folder.ReadResult("001-seed1")->failed);
  EXPECT_EQ(folder.ReadResult("001-seed1")->rungs, result.rungs);
  folder_.Write("out/results/001-seed2.json", "{");
  EXPECT_THAT(std::string(ReadResults(folder, sweep.plan).status().message()),
              HasSubstr("001-seed2.json"));
}

}  // namespace
}  // namespace macaw::cli
