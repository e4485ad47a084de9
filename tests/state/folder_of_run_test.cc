#include "state/folder_of_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "core/files.h"
#include "state/open.h"
#include "tests/state/states.h"

namespace macaw::state {
namespace {

namespace fs = std::filesystem;

class FolderOfRunTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ClientStateStore>> Open(const Digest& run, bool each_run = true) {
    return OpenStore({.path = path_, .each_run = each_run}, schema_, run);
  }
  std::string FolderOf(const Digest& run) const { return path_ + "/run-" + run.Hex(); }
  static Digest Run(int number) { return Digester().Add(uint64_t(number)).Finish(); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "state";
  const StateSchema schema_ = TwoItems();
};

// A device does one run after the other, and may go on with an earlier one.
TEST_F(FolderOfRunTest, RunsFollowEachOtherAndKeepTheirStates) {
  const Attempt version = Version(7, 1, 3);
  const TestState state(schema_, 5);
  {
    const auto first = *Open(Run(1));
    ASSERT_TRUE(first->Put(version, state.views()).ok());
    ASSERT_TRUE(first->Flush().ok());
  }
  EXPECT_EQ((*Open(Run(2)))->Get(version).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(state.Equals(*(*Open(Run(1)))->Get(version)));
}

TEST_F(FolderOfRunTest, OnlyThoseThatWereOpenedLastAreKept) {
  for (int run = 0; run <= kRunsKept; ++run) {
    ASSERT_TRUE(Open(Run(run)).ok());
    // An hour lies between two runs.
    fs::last_write_time(FolderOf(Run(run)) + "/store",
                        fs::file_time_type::clock::now() - std::chrono::hours(20 - run));
    if (run == 1) {
      ASSERT_TRUE(Open(Run(0)).ok());  // it went on after the second one began
    }
  }
  EXPECT_TRUE(fs::exists(FolderOf(Run(0))));
  EXPECT_FALSE(fs::exists(FolderOf(Run(1))));
  for (int run = 2; run <= kRunsKept; ++run) EXPECT_TRUE(fs::exists(FolderOf(Run(run)))) << run;
}

TEST_F(FolderOfRunTest, StatesThatLieInTheFolderItselfStayThere) {
  ASSERT_TRUE(Open(Run(1), /*each_run=*/false).ok());
  ASSERT_TRUE(Open(Run(1)).ok());
  EXPECT_FALSE(fs::exists(FolderOf(Run(1))));
  ASSERT_TRUE(Open(Run(2)).ok());
  EXPECT_TRUE(fs::exists(FolderOf(Run(2))));
  EXPECT_TRUE(FileExists(path_ + "/store")) << "is removed with no other run";
}

}  // namespace
}  // namespace macaw::state
