#include "cli/admin/results_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using testing::ElementsAre;

TEST(ResultsFolder, HasTheFilesThatCameWhole) {
  const testing_support::TemporaryFolder folder;
  ResultsFolder results = *ResultsFolder::Make(folder / "run");
  ASSERT_TRUE(results.Take({.file = "a.json", .size = 5, .data = "one"}).ok());
  ASSERT_TRUE(results.Take({.data = "23"}).ok());
  ASSERT_TRUE(results.Take({.file = "empty", .size = 0}).ok());
  ASSERT_TRUE(results.Take({.file = "models/0", .size = 1, .data = "x"}).ok());
  EXPECT_THAT(*results.Finish(), ElementsAre("a.json", "empty", "models/0"));
  EXPECT_EQ(*ReadFile(folder / "run/models/0"), "x");
  EXPECT_EQ(*ReadFile(folder / "run/a.json"), "one23");
  EXPECT_EQ(*ReadFile(folder / "run/empty"), "");
}

TEST(ResultsFolder, RefusesAFileThatWasCut) {
  const testing_support::TemporaryFolder folder;
  ResultsFolder results = *ResultsFolder::Make(folder / "run");
  ASSERT_TRUE(results.Take({.file = "a", .size = 5, .data = "one"}).ok());
  EXPECT_TRUE(absl::IsDataLoss(results.Take({.file = "b", .size = 1, .data = "x"})));
  EXPECT_FALSE(FileExists(folder / "run/a"));
}

TEST(ResultsFolder, CanBeFetchedAgainAfterACut) {
  const testing_support::TemporaryFolder folder;
  const std::string to = folder / "run";
  {
    ResultsFolder cut = *ResultsFolder::Make(to);
    ASSERT_TRUE(cut.Take({.file = "models/0", .size = 1, .data = "x"}).ok());
    ASSERT_TRUE(cut.Take({.file = "a", .size = 5, .data = "one"}).ok());
    EXPECT_FALSE(cut.Finish().ok());
    EXPECT_FALSE(FileExists(to + "/models/0")) << "no part of a run is taken for the run";
  }
  EXPECT_FALSE(std::filesystem::exists(to));
  // What is left of a process that was killed.
  std::filesystem::create_directories(to + "/" + kPart + "/models");
  folder.Write(std::string("run/") + kPart + "/stale", "x");
  ResultsFolder again = *ResultsFolder::Make(to);
  ASSERT_TRUE(again.Take({.file = "models/0", .size = 1, .data = "x"}).ok());
  ResultsFolder moved = std::move(again);
  ASSERT_TRUE(moved.Take({.file = "a", .size = 3, .data = "one"}).ok());
  EXPECT_THAT(*moved.Finish(), ElementsAre("models/0", "a"));
  EXPECT_EQ(*ReadFile(to + "/a"), "one");
  EXPECT_EQ(*ReadFile(to + "/models/0"), "x");
  EXPECT_FALSE(std::filesystem::exists(to + "/" + kPart));
  EXPECT_FALSE(FileExists(to + "/stale"));
}

TEST(ResultsFolder, TakesNoFileOfAnotherFolder) {
  const testing_support::TemporaryFolder folder;
  ResultsFolder results = *ResultsFolder::Make(folder / "run");
  for (const std::string name : {"../x", "/etc/x", ".ssh", "a/../../x", "a/.ssh", "a/", "a/b/c"})
    EXPECT_FALSE(results.Take({.file = name, .size = 1, .data = "x"}).ok()) << name;
  EXPECT_FALSE(results.Take({.data = "of no file"}).ok());
}

TEST(ResultsFolder, IsNew) {
  const testing_support::TemporaryFolder folder;
  folder.Write("file", "");
  EXPECT_TRUE(absl::IsAlreadyExists(ResultsFolder::Make(folder.path()).status()));
}

TEST(ResultsFolder, LeavesARefusedFolderAndAnEmptyOneAsTheyWere) {
  const testing_support::TemporaryFolder folder;
  const std::string left = folder.Write(std::string("full/") + kPart + "/left", "x");
  folder.Write("full/file", "");
  EXPECT_TRUE(absl::IsAlreadyExists(ResultsFolder::Make(folder / "full").status()));
  EXPECT_TRUE(FileExists(left));
  std::filesystem::create_directory(folder / "empty");
  {
    ResultsFolder cut = *ResultsFolder::Make(folder / "empty");
    ASSERT_TRUE(cut.Take({.file = "a", .size = 5, .data = "one"}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "empty"));
}

}  // namespace
}  // namespace macaw::cli
