#include "worker/running_marker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "testing/small_disk.h"
#include "testing/temporary_folder.h"

namespace macaw::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Attempt AttemptOf(uint64_t client, uint32_t epoch, uint64_t counter) {
  return {ClientId(client), Fence{epoch, counter}};
}

class RunningMarkerTest : public testing::Test {
 protected:
  RunningMarker Open(uint32_t slots) const {
    auto marker = RunningMarker::Open(folder_, "worker-0", slots);
    EXPECT_TRUE(marker.ok()) << marker.status();
    return *std::move(marker);
  }

  const testing_support::TemporaryFolder temporary_;
  const std::string& folder_ = temporary_.path();
};

TEST_F(RunningMarkerTest, TellsTheSuccessorOfAKilledProcessWhatWasRunning) {
  EXPECT_THAT(Open(3).died_running(), IsEmpty());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto marker = RunningMarker::Open(folder_, "worker-0", 3);
    if (!marker.ok()) ::_exit(1);
    marker->Started(0, AttemptOf(7, 2, 100));
    marker->Started(1, AttemptOf(8, 2, 101));
    marker->Finished(1);
    marker->Started(1, AttemptOf(9, 2, 102));
    marker->Started(2, AttemptOf(uint64_t{1} << 40, 2, uint64_t{1} << 50));
    marker->Finished(2);
    [[maybe_unused]] const ssize_t ignored = ::write(ready[1], "x", 1);
    while (true) ::pause();
  }
  ASSERT_GT(child, 0);
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));

  EXPECT_THAT(Open(1).died_running(), ElementsAre(AttemptOf(7, 2, 100), AttemptOf(9, 2, 102)));
  EXPECT_THAT(Open(3).died_running(), IsEmpty()) << "told once";
}

TEST_F(RunningMarkerTest, BlamesNobodyAfterAnOrderlyEnd) {
  {
    RunningMarker marker = Open(2);
    for (uint64_t k = 0; k < 5; ++k) {
      marker.Started(k % 2, AttemptOf(k, 1, k + 1));
      marker.Finished(k % 2);
    }
  }
  EXPECT_THAT(Open(2).died_running(), IsEmpty());
}

TEST_F(RunningMarkerTest, WritesNothingBeyondItsSlots) {
  {
    RunningMarker marker = Open(2);
    for (const uint32_t slot : {1u, 2u, 200u, 1u << 20})
      marker.Started(slot, AttemptOf(slot, 1, slot));
    marker.Finished(1u << 20);
  }
  EXPECT_THAT(Open(2).died_running(), ElementsAre(AttemptOf(1, 1, 1)));
}

TEST_F(RunningMarkerTest, KeepsWorkersApart) {
  RunningMarker mine = Open(1);
  mine.Started(0, AttemptOf(3, 1, 1));
  const auto other = RunningMarker::Open(folder_, "worker-1", 1);
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(other->died_running(), IsEmpty());
}

TEST_F(RunningMarkerTest, ReadsAFileThatWasCutShort) {
  {
    RunningMarker marker = Open(2);
    marker.Started(0, AttemptOf(3, 1, 1));
    marker.Started(1, AttemptOf(4, 1, 2));
  }
  const std::string path = folder_ + "/worker-0.running";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(Open(2).died_running(), ElementsAre(AttemptOf(3, 1, 1)));
}

TEST(RunningMarker, OnAFullDiskIsAnErrorAndNoBusError) {
  const testing_support::SmallDisk disk(64 << 10);
  if (!disk.mounted()) GTEST_SKIP() << disk.why();
  const std::string rest = disk.path() + "/rest";
  std::ofstream(rest) << std::string(1 << 20, 'x');  // as much of it as there is room for
  ASSERT_EQ(std::filesystem::space(disk.path()).free, 0u);
  const auto full = RunningMarker::Open(disk.path(), "worker-0", 2);
  EXPECT_THAT(full.status().ToString(), testing::AllOf(testing::HasSubstr("worker-0.running"),
                                                       testing::HasSubstr("No space")));
  std::filesystem::remove(rest);
  auto marker = RunningMarker::Open(disk.path(), "worker-0", 2);
  ASSERT_TRUE(marker.ok()) << marker.status();
  marker->Started(0, AttemptOf(3, 1, 1));
}

TEST_F(RunningMarkerTest, RemembersNothingWithoutAFolder) {
  auto marker = RunningMarker::Open("", "worker-0", 1);
  ASSERT_TRUE(marker.ok());
  marker->Started(0, AttemptOf(3, 1, 1));
  EXPECT_THAT(RunningMarker::Open("", "worker-0", 1)->died_running(), IsEmpty());
}

TEST_F(RunningMarkerTest, NamesThePathItCannotUse) {
  std::ofstream(folder_ + "/file") << "in the way";
  const auto marker = RunningMarker::Open(folder_ + "/file", "worker-0", 1);
  EXPECT_THAT(marker.status().ToString(), testing::HasSubstr(folder_ + "/file"));
}

}  // namespace
}  // namespace macaw::worker
