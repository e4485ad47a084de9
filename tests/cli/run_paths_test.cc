#include "cli/results/run_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A sweep whose jobs 001 and 002 are done, and 003 has failed. Only the first one's run is there.
void WriteSweepOfThree(const testing_support::TemporaryFolder& folder) {
  folder.Write("s/sweep.json", "{}");
  for (const char* job : {"001-seed1", "002-seed1", "003-seed1"})
    folder.Write(std::string("s/jobs/") + job + ".toml", "");
  for (const char* job : {"001-seed1", "002-seed1"})
    folder.Write(std::string("s/results/") + job + ".json", R"({"failed": false})");
  folder.Write("s/results/003-seed1.json", R"({"failed": true})");
  folder.Write("s/runs/001-seed1/config.toml", "");
  folder.Write("s/runs/001-seed1/summary.json", "{}");
}

TEST(RunPaths, NamesTheRunsOfASweepWhoseFoldersAreGone) {
  const testing_support::TemporaryFolder folder;
  WriteSweepOfThree(folder);
  const std::string gone = folder / "s" + ": 1 of 3 runs is left out, because its folder is gone: ";
  EXPECT_THAT(UnreadableRuns({folder / "s"}), ElementsAre(gone + "002-seed1."));
  const auto found = FoldersWithResults({folder / "s"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(found->folders, ElementsAre(folder / "s/runs/001-seed1"));
  EXPECT_THAT(
      found->left_out,
      ElementsAre(HasSubstr("1 of 3 runs failed or is not over, and is left out: 003-seed1."),
                  gone + "002-seed1."));
}

TEST(RunPaths, NamesTheRunsOfARepeatWhoseFoldersCannotBeRead) {
  const testing_support::TemporaryFolder folder;
  folder.Write("x-seed1/summary.json", "{}");
  // A link to itself stands for a folder that may not be read: the tests may run as root.
  for (const char* name : {"x-seed2", "x-seed3"})
    std::filesystem::create_symlink(name, folder / name);
  folder.Write("x-repeat.json", R"({"runs": [{"folder": "x-seed1", "end": "finished"},
      {"folder": "x-seed2", "end": "finished"}, {"folder": "x-seed3", "end": "finished"},
      {"folder": "x-seed4"}]})");
  EXPECT_THAT(
      UnreadableRuns({folder / "x-repeat.json"}),
      ElementsAre(AllOf(
          HasSubstr("2 of 4 runs are left out, because their folders cannot be read (Too many"),
          HasSubstr("): x-seed2, x-seed3."))));
  EXPECT_THAT(*RunFolders({folder / "x-repeat.json"}), ElementsAre(folder / "x-seed1"));
  EXPECT_THAT(WhyUnreadable(folder / "x-seed2"), HasSubstr("Too many"));
  EXPECT_EQ(WhyUnreadable(folder / "x-seed1"), "");
  EXPECT_THAT(WhyUnreadable(folder / "x-repeat.json"), HasSubstr("Not a directory"));
  EXPECT_THAT(UnreadableRuns({folder / "x-seed1"}), IsEmpty());
}

TEST(RunPaths, AFolderIsNoRepeatWhateverItsName) {
  const testing_support::TemporaryFolder folder;
  folder.Write("x.json/summary.json", "{}");
  EXPECT_THAT(*RunFolders({folder / "x.json", folder / "x.json/"}), ElementsAre(folder / "x.json"));
  EXPECT_FALSE(RunFolders({folder / "y.json"}).ok()) << "a file that is not there";
}

TEST(RunPaths, SaysWhereAllFoldersOfARepeatAreGone) {
  const testing_support::TemporaryFolder folder;
  folder.Write("x-repeat.json", R"({"runs": [{"folder": "x-seed1", "end": "finished"}]})");
  EXPECT_THAT(std::string(FoldersWithResults({folder / "x-repeat.json"}).status().message()),
              HasSubstr("1 of 1 runs is left out, because its folder is gone: x-seed1."));
}

}  // namespace
}  // namespace macaw::cli
