// What operators see of a real coordinator, and what they leave in its files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "server/coordinator.h"
#include "server/log/orders.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using admin::Action;
using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::Lines;
using fixtures::RunBytes;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using testing::HasSubstr;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

admin::RunStatus StatusOf(Coordinator& run) {
  std::promise<absl::StatusOr<admin::RunStatus>> promise;
  run.operations().Status([&](auto status) { promise.set_value(std::move(status)); });
  return *promise.get_future().get();
}

absl::StatusOr<admin::Changed> Ask(Coordinator& run, admin::Change change) {
  change.by = "ada";
  std::promise<absl::StatusOr<admin::Changed>> promise;
  run.operations().Apply(change, [&](auto said) { promise.set_value(std::move(said)); });
  return promise.get_future().get();
}

// The next server knows what an operator has been told.
TEST(Operators, AreAnsweredWhenTheChangeIsInTheLog) {
  for (const char* durability : {"checkpoint", "commit"}) {
    const TemporaryFolder folder;
    Options options = TinyOptions(folder.path(), 4);
    options.config.durability = durability;
    const auto run = StartTiny(std::move(options));
    FakeWorker worker(*run, "ben");
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(1);
    for (const Action action : {Action::kQuarantine, Action::kAdmit}) {
      std::promise<bool> in_quarantine;
      run->operations().Apply(
          {.action = action, .by = "ada", .reason = "noise", .node = "ben"}, [&](auto said) {
            const auto orders = log::ReadOrders(folder / "rounds.log", UINT64_MAX);
            in_quarantine.set_value(said.ok() && orders.ok() && orders->quarantine.contains("ben"));
          });
      EXPECT_EQ(in_quarantine.get_future().get(), action == Action::kQuarantine) << durability;
    }
    run->Interrupt();
    EXPECT_TRUE(run->Wait().ok());
  }
}

TEST(Operators, ARoundThatIsAbortedAndARunThatIsPausedGiveTheSameBytes) {
  const TemporaryFolder plain, disturbed;
  Finish(TinyOptions(plain.path(), 4));
  {
    const auto run = StartTiny(TinyOptions(disturbed.path(), 4));
    FakeWorker worker(*run);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(1);
    const auto commit = worker.WorkOnPart();
    ASSERT_TRUE(commit.has_value());
    const uint32_t round = StatusOf(*run).round;
    ASSERT_TRUE(Ask(*run, {.request_id = "1", .action = Action::kAbortRound, .round = round}).ok());
    EXPECT_EQ(worker.Commit(*commit).verdict, fleet::Verdict::kStale);
    worker.GiveBackEverything();
    ASSERT_TRUE(Ask(*run, {.request_id = "2", .action = Action::kPause}).ok());
    ASSERT_TRUE(Ask(*run, {.request_id = "3", .action = Action::kResume}).ok());
    worker.RunToEnd();
    EXPECT_EQ(run->Wait()->kind, Outcome::Kind::kFinished);
  }
  EXPECT_EQ(RunBytes(plain.path()), RunBytes(disturbed.path()));
}

TEST(Operators, EveryChangeIsAnEventWithWhoAskedForIt) {
  const TemporaryFolder folder;
  {
    const auto run = StartTiny(TinyOptions(folder.path(), 2));
    ASSERT_TRUE(Ask(*run, {.request_id = "a",
                           .action = Action::kQuarantine,
                           .reason = "it is in the lab",
                           .node = "phone-7"})
                    .ok());
    ASSERT_TRUE(Ask(*run, {.request_id = "b", .action = Action::kDrain}).ok());
    EXPECT_EQ(run->Wait()->kind, Outcome::Kind::kInterrupted);
    // The feed ends with the run, and its numbers are those of the lines in the file.
    const admin::EventFeed::Batch batch = run->operations().events().Read(1, 100);
    EXPECT_TRUE(batch.closed);
    EXPECT_EQ(batch.lines, Lines(folder / "events.jsonl"));
  }
  const std::vector<std::string> lines = Lines(folder / "events.jsonl");
  ASSERT_GE(lines.size(), 2u);
  const Json quarantine = Json::parse(lines[0]);
  EXPECT_EQ(quarantine["event"], "quarantine");
  EXPECT_EQ(quarantine["worker"], "phone-7");
  EXPECT_EQ(quarantine["by"], "ada");
  EXPECT_EQ(quarantine["why"], "it is in the lab");
  EXPECT_EQ(Json::parse(lines[1])["event"], "drain");
}

TEST(Operators, ARepeatedRequestHasNoSecondEffectAndTheSameAnswer) {
  const TemporaryFolder folder;
  const auto run = StartTiny(TinyOptions(folder.path(), 2));
  const auto first = Ask(*run, {.request_id = "x", .action = Action::kPause});
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(Ask(*run, {.request_id = "y", .action = Action::kResume}).ok());
  EXPECT_EQ(Ask(*run, {.request_id = "x", .action = Action::kPause})->text, first->text);
  EXPECT_NE(StatusOf(*run).state, admin::RunState::kPausing);
}

// While a restarted server does earlier rounds again, it says that the call is to be repeated.
TEST(Operators, ARepeatedRequestIsLookedAtAgainWhereItWasToBeRepeated) {
  constexpr uint32_t kClosed = 20;
  const TemporaryFolder folder;
  Options options = TinyOptions(folder.path(), kClosed + 2);
  options.run.evaluation.every = 0;
  options.config.durability = "commit";
  options.config.checkpoint_every = 100;
  {
    const auto run = StartTiny(options);
    FakeWorker worker(*run);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(kClosed);
    ASSERT_TRUE(worker.WorkOnPart().has_value());
    run->Suspend();
    ASSERT_TRUE(run->Wait().ok());
  }
  options.resume = true;
  const auto run = StartTiny(options);
  const admin::Change abort = {
      .request_id = "x", .action = Action::kAbortRound, .round = kClosed + 1};
  absl::StatusOr<admin::Changed> said = Ask(*run, abort);
  const TimePoint until = SteadyClock().Now() + FromSeconds(20);
  while (absl::IsUnavailable(said.status()) && SteadyClock().Now() < until) {
    absl::SleepFor(absl::Milliseconds(5));
    said = Ask(*run, abort);
  }
  EXPECT_TRUE(said.ok()) << said.status();
  run->Interrupt();
  EXPECT_TRUE(run->Wait().ok());
}

TEST(Operators, AStatusHasTheRowOfTheNewestRoundAndSaysWhatIsWaitedFor) {
  const TemporaryFolder folder;
  const auto run = StartTiny(TinyOptions(folder.path(), 3));
  EXPECT_THAT(StatusOf(*run).waits_for, HasSubstr("0 of 1 worker"));
  FakeWorker worker(*run, "w<script>");
  ASSERT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  ASSERT_TRUE(run->Wait().ok());
  const admin::RunStatus status = StatusOf(*run);
  EXPECT_EQ(status.state, admin::RunState::kEnded);
  EXPECT_THAT(status.waits_for, HasSubstr("finished"));
  const Json json = Json::parse(admin::JsonOf(status));
  EXPECT_EQ(json["latest_row"]["round"], 3);
  EXPECT_EQ(json["nodes"][0]["name"], "w<script>");
}

}  // namespace
}  // namespace macaw::server
