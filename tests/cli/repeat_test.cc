#include "cli/simulate/repeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const ExperimentKey kFedAvg = {"exp", "fedavg", R"({"local.lr":0.1})"};
const ExperimentKey kScaffold = {"exp", "scaffold", R"({"local.lr":0.05})"};

class RepeatTest : public ::testing::Test {
 protected:
  absl::StatusOr<Repeat> Open(const ExperimentKey& key, bool fixed = false, bool force = false) {
    return Repeat::Open(folder_ / "exp", fixed, force, key, {1, 2});
  }
  // What a run of the repeat leaves in its folder.
  void WriteSummary(const std::string& name, uint64_t seed, const std::string& end) {
    folder_.Write(
        name + "/summary.json",
        absl::StrCat(R"({"algorithm":"fedavg","settings":{},"seed":)", seed, R"(,"end":")", end,
                     R"(","rounds":5,"final":{"test_loss":)", seed, "}}"));
  }
  // Begins a seed and ends it, as the command does.
  void Make(Repeat& repeat, uint64_t seed) {
    ASSERT_TRUE(repeat.Begin(seed).ok());
    WriteSummary(absl::StrCat("exp-seed", seed), seed, "finished");
    ASSERT_TRUE(repeat.Finish(*ReadResult(repeat.FolderOf(seed))).ok());
  }
  Json File(const std::string& name) { return Json::parse(*ReadFile(folder_ / name)); }

  const testing_support::TemporaryFolder folder_;
};

TEST_F(RepeatTest, ItsFileNamesAlgorithmSettingsSeedsAndMetrics) {
  Repeat repeat = *Open(kFedAvg);
  Make(repeat, 1);
  Make(repeat, 2);
  const Json file = File("exp-repeat.json");
  EXPECT_EQ(file["algorithm"], "fedavg");
  EXPECT_EQ(file["settings"]["local.lr"], 0.1);
  EXPECT_EQ(file["seeds"], Json({1, 2}));
  EXPECT_EQ(file["metrics"]["test_loss"]["mean"], 1.5);
  EXPECT_EQ(file["runs"][1]["folder"], folder_ / "exp-seed2");
}

TEST_F(RepeatTest, OneRunHasNoDeviation) {
  Repeat repeat = *Open(kFedAvg);
  Make(repeat, 1);
  const Json metric = File("exp-repeat.json")["metrics"]["test_loss"];
  EXPECT_EQ(metric["mean"], 1);
  EXPECT_TRUE(metric["std"].is_null()) << metric;
}

TEST_F(RepeatTest, TheSameExperimentGoesOnWithWhatIsThere) {
  {
    Repeat repeat = *Open(kFedAvg);
    Make(repeat, 1);
    ASSERT_TRUE(repeat.Begin(2).ok());
    ASSERT_TRUE(
        MakeDirectories(repeat.FolderOf(2) + "/logs").ok());  // and then everything was killed
  }
  const Repeat again = *Open(kFedAvg);
  EXPECT_TRUE(again.Done(1));
  EXPECT_TRUE(again.Begun(2));
  EXPECT_FALSE(again.Done(2));
  EXPECT_FALSE(again.Begun(3));
  EXPECT_EQ(again.file(), folder_ / "exp-repeat.json");
}

TEST_F(RepeatTest, ARunThatEndedBeforeTheFileHeardOfItIsDone) {
  {
    Repeat repeat = *Open(kFedAvg);
    ASSERT_TRUE(repeat.Begin(1).ok());
    ASSERT_TRUE(repeat.Begin(2).ok());
    WriteSummary("exp-seed1", 1, "finished");
    WriteSummary("exp-seed2", 2, "interrupted");
  }
  const Repeat again = *Open(kFedAvg);
  EXPECT_TRUE(again.Done(1));
  EXPECT_FALSE(again.Done(2));
}

TEST_F(RepeatTest, AnotherExperimentOfTheSameNameReplacesNothing) {
  Repeat first = *Open(kFedAvg);
  Make(first, 1);
  const std::string before = *ReadFile(first.file());
  const Repeat second = *Open(kScaffold);
  EXPECT_EQ(second.file(), folder_ / "exp-2-repeat.json");
  EXPECT_EQ(second.FolderOf(1), folder_ / "exp-2-seed1");
  EXPECT_EQ(*ReadFile(first.file()), before);
}

TEST_F(RepeatTest, AnotherExperimentWhereTheUserNamedTheFolderIsRefusedWithTheDifference) {
  {
    Repeat first = *Open(kFedAvg);
    Make(first, 1);
  }
  const std::string refusal(Open(kScaffold, /*fixed=*/true).status().message());
  EXPECT_THAT(refusal, HasSubstr("exp-repeat.json"));
  EXPECT_THAT(refusal, HasSubstr("algorithm.name \"fedavg\" there, \"scaffold\" here"));
  EXPECT_THAT(refusal, HasSubstr("local.lr 0.1 there, 0.05 here"));
  EXPECT_TRUE(Open(kScaffold, /*fixed=*/true, /*force=*/true).ok());
}

TEST_F(RepeatTest, TheSameExperimentBegunAtOneMomentTakesTheNextName) {
  Repeat first = *Open(kFedAvg);
  {
    const Repeat second = *Open(kFedAvg);
    EXPECT_EQ(second.file(), folder_ / "exp-2-repeat.json");
    EXPECT_EQ(Open(kFedAvg)->file(), folder_ / "exp-3-repeat.json");
  }
  Make(first, 1);
  EXPECT_EQ(Open(kFedAvg)->file(), folder_ / "exp-2-repeat.json");
  for (const bool force : {false, true}) {
    EXPECT_THAT(std::string(Open(kFedAvg, /*fixed=*/true, force).status().message()),
                HasSubstr("another process is running the experiment"));
  }
}

TEST_F(RepeatTest, RunsThatAreNoExperimentsKeepTheirFolders) {
  WriteSummary("exp-seed2", 2, "finished");
  EXPECT_EQ(Open(kFedAvg)->file(), folder_ / "exp-2-repeat.json");
  EXPECT_THAT(std::string(Open(kFedAvg, /*fixed=*/true).status().message()),
              HasSubstr("exp-seed2 is there already"));
}

TEST_F(RepeatTest, AFileThatIsNoExperimentIsNamed) {
  folder_.Write("exp-repeat.json", "{\"runs\": 5");
  EXPECT_THAT(std::string(Open(kFedAvg).status().message()), HasSubstr("exp-repeat.json"));
}

TEST_F(RepeatTest, ItsFoldersAreFoundBesideTheFile) {
  Repeat repeat = *Open(kFedAvg);
  Make(repeat, 1);
  Make(repeat, 2);
  std::filesystem::create_directories(folder_ / "moved");
  for (const char* name : {"exp-repeat.json", "exp-seed1", "exp-seed2"})
    std::filesystem::rename(folder_ / name, folder_ / "moved/" + name);
  EXPECT_THAT(*FoldersOfRepeat(folder_ / "moved/exp-repeat.json"),
              ElementsAre(folder_ / "moved/exp-seed1", folder_ / "moved/exp-seed2"));
}

}  // namespace
}  // namespace macaw::cli
