#include "cli/sweep/repeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/results/result.h"
#include "cli/results/run_paths.h"
#include "cli/sweep/table.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ordered = nlohmann::ordered_json;

const Ordered kFedAvg = {{"algorithm.name", "fedavg"}, {"local.lr", 0.1}};
const Ordered kScaffold = {{"algorithm.name", "scaffold"}, {"local.lr", 0.05}};

PreparedSweep SweepOf(const Ordered& settings, std::vector<uint64_t> seeds = {1, 2}) {
  PreparedSweep sweep;
  sweep.plan.metric = "test_loss";
  sweep.plan.higher = false;
  sweep.plan.seeds = std::move(seeds);
  sweep.plan.configurations.push_back({.rounds = 5, .settings = settings});
  for (const uint64_t seed : sweep.plan.seeds)
    sweep.jobs.push_back({.name = absl::StrCat("seed", seed), .seed = seed, .config = "# a job\n"});
  return sweep;
}

class RepeatTest : public ::testing::Test {
 protected:
  // Opens what the command opens, and writes the plan.
  absl::StatusOr<HeldSweep> Open(PreparedSweep& sweep, bool fixed = false,
                                 bool force = false) const {
    absl::StatusOr<HeldSweep> held = OpenRepeat(folder_ / "exp", fixed, force, sweep);
    if (held.ok()) {
      EXPECT_TRUE(held->folder.Write(sweep).ok());
    }
    return held;
  }
  absl::StatusOr<HeldSweep> Open(const Ordered& settings, bool fixed = false,
                                 bool force = false) const {
    PreparedSweep sweep = SweepOf(settings);
    return Open(sweep, fixed, force);
  }
  std::string Refused(const Ordered& settings, bool force = false) const {
    return std::string(Open(settings, /*fixed=*/true, force).status().message());
  }
  // What a run leaves in its folder.
  std::string WriteRun(const std::string& name, uint64_t seed) const {
    folder_.Write(name + "/config.toml", "");
    folder_.Write(name + "/run-id", "");
    folder_.Write(
        name + "/summary.json",
        absl::StrCat(R"({"algorithm":"fedavg","settings":{},"seed":)", seed,
                     R"(,"end":"finished","rounds":5,"final":{"test_loss":)", seed, "}}"));
    return folder_ / name;
  }
  // What the sweep keeps of a run that is over.
  void Finish(const HeldSweep& held, uint64_t seed) const {
    const RunResult result = *ReadResult(WriteRun(absl::StrCat("exp-seed", seed), seed));
    ASSERT_TRUE(held.folder
                    .WriteResult(absl::StrCat("seed", seed),
                                 {.rungs = {{5, ValuesOf(result)}}, .failed = false, .why = ""})
                    .ok());
  }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(RepeatTest, RunsAreBesideItsFolderAndItsFileNamesThem) {
  PreparedSweep sweep = SweepOf(kFedAvg);
  const HeldSweep held = *Open(sweep);
  EXPECT_EQ(held.folder.path(), folder_ / "exp-repeat");
  EXPECT_EQ(held.folder.RunOf(sweep.plan, "seed1"), folder_ / "exp-seed1");
  Finish(held, 1);
  const ResultTable table =
      MakeTable(sweep.plan, *ReadResults(held.folder, sweep.plan), held.folder);
  const Ordered file = Ordered::parse(RepeatJson(sweep.plan, table));
  EXPECT_EQ(file["algorithm"], "fedavg");
  EXPECT_EQ(file["settings"], Ordered({{"local.lr", 0.1}}));
  EXPECT_EQ(file["seeds"], Ordered({1, 2}));
  EXPECT_EQ(file["runs"][0]["end"], "finished");
  EXPECT_EQ(file["runs"][1]["folder"], folder_ / "exp-seed2");
  EXPECT_EQ(file["metrics"]["test_loss"]["values"], Ordered({1}));
  EXPECT_TRUE(file["metrics"]["test_loss"]["std"].is_null()) << "one run has no deviation";
}

TEST_F(RepeatTest, ItsTableHasEveryColumnAndALineForEach) {
  PreparedSweep sweep = SweepOf(kFedAvg);
  const HeldSweep held = *Open(sweep);
  Finish(held, 1);
  Finish(held, 2);
  auto results = *ReadResults(held.folder, sweep.plan);
  for (auto& [name, result] : results) result.rungs[5]["examples"] = 40;
  const ResultTable table = MakeTable(sweep.plan, results, held.folder);
  const Ordered json = Ordered::parse(TableJson(table));
  EXPECT_EQ(json["report"], Ordered::array()) << "nothing was asked for";
  EXPECT_EQ(json["rows"][0]["report"]["examples"]["mean"], 40);
  EXPECT_EQ(TableText(table),
            "runs           2\n"
            "seeds          1, 2\n"
            "test_loss      1.5000 ± 0.7071\n"
            "95 % interval  -4.8531 to 7.8531\n"
            "examples       40 ± 0\n");
}

TEST_F(RepeatTest, TheSameExperimentGoesOnAndTakesFurtherSeeds) {
  {
    const HeldSweep held = *Open(kFedAvg);
    Finish(held, 1);
    ASSERT_TRUE(MakeDirectories(folder_ / "exp-seed2/logs").ok());  // and then all was killed
  }
  PreparedSweep more = SweepOf(kFedAvg, {2, 3});
  const HeldSweep again = *Open(more);
  EXPECT_EQ(again.folder.path(), folder_ / "exp-repeat");
  EXPECT_THAT(more.plan.seeds, ElementsAre(1, 2, 3)) << "what is over stays in the table";
  PreparedSweep fewer = SweepOf(kFedAvg, {1});
  const_cast<HeldSweep&>(again).lock.Close();
  ASSERT_TRUE(Open(fewer).ok());
  EXPECT_THAT(fewer.plan.seeds, ElementsAre(1)) << "what is open and not asked for is left out";
}

TEST_F(RepeatTest, AnotherExperimentOfTheSameNameReplacesNothing) {
  const std::string first = Open(kFedAvg)->folder.path();
  const std::string before = *ReadFile(first + "/sweep.json");
  PreparedSweep sweep = SweepOf(kScaffold);
  const HeldSweep second = *Open(sweep);
  EXPECT_EQ(second.folder.path(), folder_ / "exp-2-repeat");
  EXPECT_EQ(second.folder.RunOf(sweep.plan, "seed1"), folder_ / "exp-2-seed1");
  EXPECT_EQ(*ReadFile(first + "/sweep.json"), before);
}

TEST_F(RepeatTest, AnotherExperimentWhereTheUserNamedTheFolderIsRefusedWithTheDifference) {
  WriteRun("exp-seed1", 1);
  ASSERT_TRUE(Open(kFedAvg, /*fixed=*/true, /*force=*/true).ok());
  EXPECT_FALSE(FileExists(folder_ / "exp-seed1/summary.json")) << "it begins again";
  EXPECT_THAT(Refused(kScaffold),
              AllOf(HasSubstr("exp-repeat"), HasSubstr(R"(algorithm.name "fedavg" there)"),
                    HasSubstr("local.lr 0.1 there, 0.05 here")));
  EXPECT_TRUE(Open(kScaffold, /*fixed=*/true, /*force=*/true).ok());
}

TEST_F(RepeatTest, NoRunIsRemovedWhoseFileTheNewOnesRead) {
  ASSERT_TRUE(Open(kFedAvg).ok());
  WriteRun("exp-seed1", 1);
  const std::string model = WriteRun("exp-seed2", 2) + "/model.safetensors";
  folder_.Write("exp-seed2/model.safetensors", "x");
  PreparedSweep sweep = SweepOf(kScaffold);
  EXPECT_THAT(
      OpenRepeat(folder_ / "exp", /*fixed=*/true, /*force=*/true, sweep, {{"model.init", model}})
          .status()
          .message(),
      HasSubstr("--force would remove"));
  EXPECT_TRUE(FileExists(model));
  EXPECT_TRUE(FileExists(folder_ / "exp-seed1/summary.json"));
}

TEST_F(RepeatTest, TheSameExperimentBegunAtOneMomentTakesTheNextName) {
  const auto first = Open(kFedAvg);
  {
    const auto second = Open(kFedAvg);
    EXPECT_EQ(second->folder.path(), folder_ / "exp-2-repeat");
    EXPECT_EQ(Open(kFedAvg)->folder.path(), folder_ / "exp-3-repeat");
  }
  EXPECT_EQ(Open(kFedAvg)->folder.path(), folder_ / "exp-2-repeat");
  for (const bool force : {false, true})
    EXPECT_THAT(Refused(kFedAvg, force), HasSubstr("another process is running"));
}

TEST_F(RepeatTest, RunsThatAreNoExperimentsKeepTheirFolders) {
  WriteRun("exp-seed2", 2);
  EXPECT_EQ(Open(kFedAvg)->folder.path(), folder_ / "exp-2-repeat");
  EXPECT_THAT(Refused(kFedAvg), HasSubstr("exp-seed2 is there already"));
}

TEST_F(RepeatTest, FurtherSeedsReplaceNoRunOfAnotherCommand) {
  (void)Open(kFedAvg);
  WriteRun("exp-seed3", 3);
  PreparedSweep more = SweepOf(kFedAvg, {1, 2, 3});
  EXPECT_THAT(std::string(Open(more, /*fixed=*/true).status().message()),
              HasSubstr("exp-seed3 is there already"));
  EXPECT_TRUE(FileExists(folder_ / "exp-seed3/summary.json"));
}

TEST_F(RepeatTest, ASeedWhoseRunWasRemovedIsOpenAgain) {
  PreparedSweep sweep = SweepOf(kFedAvg);
  const HeldSweep held = *Open(sweep);
  Finish(held, 1);
  Finish(held, 2);
  std::filesystem::remove_all(folder_ / "exp-seed2");
  const auto results = *ReadResults(held.folder, sweep.plan);
  EXPECT_FALSE(results.at("seed1").rungs.empty());
  EXPECT_TRUE(results.at("seed2").rungs.empty());
}

TEST_F(RepeatTest, ARepeatOfAnOlderVersionIsReadAndNotContinued) {
  folder_.Write("exp-repeat.json", R"({"runs": [{"folder": "runs/exp-seed1", "seed": 1},
                                                {"folder": "runs/exp-seed2", "seed": 2}]})");
  WriteRun("exp-seed1", 1);
  EXPECT_THAT(Refused(kFedAvg), AllOf(HasSubstr("exp-repeat.json"), HasSubstr("older version")));
  EXPECT_EQ(Open(kFedAvg)->folder.path(), folder_ / "exp-2-repeat");
  EXPECT_THAT(*RunFolders({folder_ / "exp-repeat.json"}), ElementsAre(folder_ / "exp-seed1"));
}

TEST_F(RepeatTest, ItsRunsAreFoundAlsoWhereAllWasMoved) {
  PreparedSweep sweep = SweepOf(kFedAvg);
  {
    const HeldSweep held = *Open(sweep);
    Finish(held, 1);
    Finish(held, 2);
    const ResultTable table =
        MakeTable(sweep.plan, *ReadResults(held.folder, sweep.plan), held.folder);
    folder_.Write("exp-repeat.json", RepeatJson(sweep.plan, table));
  }
  std::filesystem::create_directories(folder_ / "moved");
  for (const char* name : {"exp-repeat", "exp-repeat.json", "exp-seed1", "exp-seed2"})
    std::filesystem::rename(folder_ / name, folder_ / "moved/" + name);
  for (const char* name : {"moved/exp-repeat", "moved/exp-repeat.json"}) {
    EXPECT_THAT(*RunFolders({folder_ / name}),
                ElementsAre(folder_ / "moved/exp-seed1", folder_ / "moved/exp-seed2"));
  }
  folder_.Write("broken-repeat.json", "{\"runs\": 5");
  EXPECT_THAT(std::string(RunFolders({folder_ / "broken-repeat.json"}).status().message()),
              HasSubstr("broken-repeat.json"));
  folder_.Write("odd/sweep.json", "{\"runs\": 5}");
  EXPECT_THAT(std::string(RunFolders({folder_ / "odd"}).status().message()),
              HasSubstr("odd holds a sweep of which no run has begun"));
}

}  // namespace
}  // namespace macaw::cli
