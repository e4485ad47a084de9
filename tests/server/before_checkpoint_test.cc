#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

// Files of other processes to which a checkpoint refers are made durable first. If that fails, no
// checkpoint is written.
namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

size_t Checkpoints(const std::string& run_dir) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir + "/checkpoints"))
    count += entry.is_regular_file() ? 1 : 0;
  return count;
}

TEST(BeforeCheckpoint, IsCalledBeforeEachOne) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  options.config.checkpoint_every = 2;
  std::atomic<int> calls = 0;
  std::atomic<bool> first_was_early = false;
  options.before_checkpoint = [&] {
    if (++calls == 1) first_was_early = Checkpoints(folder.path()) == 0;
    return absl::OkStatus();
  };
  EXPECT_EQ(Finish(options).kind, Outcome::Kind::kFinished);
  EXPECT_EQ(calls, 2);  // after round 2, and at the end
  EXPECT_TRUE(first_was_early);
  EXPECT_EQ(Checkpoints(folder.path()), 2u);
}

TEST(BeforeCheckpoint, WithoutItThereIsNoCheckpointAndTheRunEndsWithTheReason) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  options.config.checkpoint_every = 2;
  options.before_checkpoint = [] { return absl::DataLossError("the disk of the states is gone"); };
  const auto coordinator = StartTiny(options);
  FakeWorker worker(*coordinator);
  ASSERT_TRUE(worker.Register().ok());
  while (const auto request = worker.Work()) (void)worker.Commit(*request);  // until the run ends
  const auto outcome = coordinator->Wait();
  EXPECT_FALSE(outcome.ok());
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("the disk of the states is gone"));
  EXPECT_EQ(Checkpoints(folder.path()), 0u);
}

TEST(BeforeCheckpoint, OfTheEndFailsTheCheckpointAndNotTheResult) {
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), 4);
  options.config.checkpoint_every = 10;  // the only one is that of the end
  options.before_checkpoint = [] {
    return absl::ResourceExhaustedError("No space left on device");
  };
  const Outcome outcome = Finish(options);
  EXPECT_EQ(outcome.kind, Outcome::Kind::kFinished);
  EXPECT_EQ(outcome.rounds, 4u);
  EXPECT_THAT(outcome.warning,
              AllOf(HasSubstr("No space left on device"), HasSubstr(folder.path() + "/checkpoints"),
                    HasSubstr("round 4")));
  EXPECT_THAT(fixtures::Slurp(folder / "summary.json"), HasSubstr("\"rounds\": 4"));
  EXPECT_EQ(Checkpoints(folder.path()), 0u);
}

// The log must not say that the run is over: the next server goes on from the journal.
TEST(BeforeCheckpoint, OfAnInterruptedRunLosesNoDurableRound) {
  const TemporaryFolder folder, whole;
  Options options = TinyOptions(folder.path(), 4);
  options.config.durability = "commit";
  options.config.checkpoint_every = 10;
  options.before_checkpoint = [] { return absl::UnavailableError("the disk is full"); };
  {
    const auto coordinator = StartTiny(options);
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(2);
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    EXPECT_THAT(std::string(coordinator->Wait().status().message()), HasSubstr("the disk is full"));
  }
  EXPECT_FALSE(fixtures::HistoryOf(folder).ended().has_value());
  options.resume = true;
  options.before_checkpoint = nullptr;
  EXPECT_EQ(Finish(options).rounds, 4u);
  EXPECT_EQ(fixtures::HistoryOf(folder).sessions().back().completed, Round(2));
  options.resume = false;
  options.run_dir = whole.path();
  Finish(options);
  EXPECT_EQ(fixtures::RunBytes(folder.path()), fixtures::RunBytes(whole.path()));
}

}  // namespace
}  // namespace macaw::server
