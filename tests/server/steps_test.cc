// Rounds that do not wait for each other, with the server's threads and files: a server that dies
// inside a round, and a run that is repeated from its log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator.h"
#include "testing/local_link.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::Finish;
using fixtures::HistoryOf;
using fixtures::RunBytes;
using fixtures::StartTiny;
using fixtures::TinyOptions;
using testing_support::TemporaryFolder;

constexpr uint32_t kStepRounds = 5;
constexpr int kDevices = 5;

// Two arrivals a round, four clients at a time.
Options Durable(const std::string& run_dir, bool resume = false) {
  Options options = TinyOptions(run_dir, kStepRounds);
  options.run.cohort.size = 2;
  options.run.asynchronous = {.mode = "buffered", .concurrency = 4};
  options.config.durability = "commit";
  options.config.checkpoint_every = 2;
  options.config.workers = kDevices;
  options.resume = resume;
  return options;
}

// How long to wait for an answer that will come, and for one that may not.
constexpr Duration kAnswer = std::chrono::seconds(20), kPerhaps = std::chrono::milliseconds(200);

// A worker with the rows of all clients, which trains one at a time.
class Device {
 public:
  Device(Coordinator& server, int number) {
    Follow(server);
    worker_->identity().name = absl::StrCat("device-", number);
    worker_->identity().arrives = true;
    const auto registered = worker_->link().Register(worker_->identity());
    EXPECT_TRUE(registered.ok()) << registered.status();
    if (registered.ok()) session_ = registered->session;
  }
  // The next server of the run, in the same session.
  void Follow(Coordinator& server) { worker_ = std::make_unique<FakeWorker>(server); }

  bool trains() const { return begun_.has_value(); }
  bool finished() const { return finished_; }  // the run is over
  // Asks for work, and does evaluations. False: there is none now.
  bool Begin(Duration wait = kPerhaps) {
    while (!begun_.has_value()) {
      const fleet::LeaseReply reply = Ask({.session = session_, .wanted = 1, .wait = wait});
      finished_ = reply.next == fleet::Next::kFinished;
      if (reply.next != fleet::Next::kWork) return false;
      if (reply.training.has_value()) {
        EXPECT_FALSE(reply.evaluation.has_value()) << "its results would wait for the training";
        begun_ = *reply.training;
      }
      if (!reply.evaluation.has_value()) continue;
      fleet::CommitRequest request{.session = session_, .commit_id = ++commits_};
      worker_->Evaluate(*reply.evaluation, request);
      EXPECT_EQ(worker_->Commit(request).verdict, fleet::Verdict::kAccepted);
    }
    return true;
  }
  // Arrives and commits. Returns by how many rounds the client's model was older; nullopt: it does
  // not count now.
  std::optional<uint32_t> Count(Duration wait = kPerhaps) {
    const fleet::Assignment& one = begun_->assignments.at(0);
    const fleet::LeaseReply reply = Ask(
        {.session = session_, .running = 1, .wait = wait, .trained = {{one.client, one.fence}}});
    if (!reply.training.has_value()) {
      if (reply.next == fleet::Next::kCommit) begun_.reset();
      return std::nullopt;
    }
    fleet::CommitRequest request{.session = session_, .commit_id = ++commits_};
    worker_->Train(*reply.training, request);
    request.part->sums = worker_->Sums({{one.client, one.weight, 1}});
    const fleet::CommitReply committed = worker_->Commit(request);
    EXPECT_EQ(committed.verdict, fleet::Verdict::kAccepted) << committed.reason;
    begun_.reset();
    return reply.training->assignments.at(0).staleness;
  }

 private:
  fleet::LeaseReply Ask(const fleet::LeaseRequest& request) {
    const auto reply = worker_->link().Lease(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(fleet::LeaseReply{.next = fleet::Next::kFinished});
  }

  std::unique_ptr<FakeWorker> worker_;
  SessionId session_;
  uint64_t commits_ = 0;
  std::optional<fleet::TrainingLease> begun_;
  bool finished_ = false;
};

// In each turn all devices train, and those that are ready count. Device 0 is ready in every third
// turn only. `after`: called after each count.
template <typename After>
void Work(std::vector<Device>& devices, const After& after) {
  std::map<uint32_t, int> ages;
  for (int turn = 0; turn < 100; ++turn) {
    for (Device& device : devices) device.Begin();
    if (std::ranges::none_of(devices, &Device::trains)) {
      if (std::ranges::any_of(devices, &Device::finished)) break;
      continue;  // no answer came in time
    }
    for (size_t i = 0; i < devices.size(); ++i) {
      if (!devices[i].trains() || (i == 0 && turn % 3 != 2)) continue;
      if (const auto age = devices[i].Count(); age.has_value()) ++ages[*age];
      after();
    }
  }
  EXPECT_GT(ages[0], 0);
  EXPECT_GT(ages[1] + ages[2] + ages[3], 0) << "nobody trains over several rounds";
}

std::vector<Device> Devices(Coordinator& coordinator) {
  std::vector<Device> devices;
  for (int i = 0; i < kDevices; ++i) devices.emplace_back(coordinator, i);
  return devices;
}

TEST(Steps, AServerThatDiesAfterAnyArrivalGoesOnWithAllClientsAndARepeatedRunIsTheSame) {
  const TemporaryFolder undisturbed, killed, again;
  {
    const auto coordinator = StartTiny(Durable(undisturbed.path()));
    std::vector<Device> devices = Devices(*coordinator);
    Work(devices, [] {});
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  {
    auto coordinator = StartTiny(Durable(killed.path()));
    std::vector<Device> devices = Devices(*coordinator);
    int servers = 1;
    Work(devices, [&] {
      coordinator->Suspend();
      const auto outcome = coordinator->Wait();
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      if (outcome->kind == Outcome::Kind::kFinished) return;
      coordinator = StartTiny(Durable(killed.path(), /*resume=*/true));
      ASSERT_NE(coordinator, nullptr);
      for (Device& device : devices) device.Follow(*coordinator);
      ++servers;
    });
    (void)coordinator->Wait();
    EXPECT_GT(servers, 4);
  }
  const log::History first = HistoryOf(undisturbed), second = HistoryOf(killed);
  EXPECT_EQ(first.completed(), Round(kStepRounds));
  EXPECT_EQ(log::FirstDifference(first, second), std::nullopt);
  EXPECT_EQ(RunBytes(undisturbed.path()), RunBytes(killed.path()));

  // The workers of the repeated run have several clients in a part.
  const log::Decisions decisions = second.decisions();
  ASSERT_TRUE(decisions.at({Round(2), Phase(0)}).step.has_value());
  Options repeating = TinyOptions(again.path(), kStepRounds);
  repeating.run = Durable("").run;
  repeating.replays = second.sessions().front().run;
  repeating.decisions = decisions;
  Finish(repeating);
  EXPECT_EQ(log::FirstDifference(second, HistoryOf(again)), std::nullopt);
  EXPECT_EQ(RunBytes(again.path()).digest, RunBytes(killed.path()).digest);
}

absl::Status Order(Coordinator& run, const std::string& id, admin::Action action) {
  std::promise<absl::Status> promise;
  run.operations().Apply({.request_id = id, .action = action, .by = "ada"},
                         [&](auto said) { promise.set_value(said.status()); });
  return promise.get_future().get();
}

// As for an upgrade of the server: the run is paused, and its newest round is in a checkpoint.
TEST(Steps, WhoTrainsWhileARunIsPausedCountsUnderTheNextServer) {
  const TemporaryFolder folder;
  const auto options = [&](bool resume) {
    Options made = Durable(folder.path(), resume);
    made.run.evaluation.every = 0;
    made.config.checkpoint_every = 1;
    return made;
  };
  auto coordinator = StartTiny(options(false));
  std::vector<Device> devices = Devices(*coordinator);
  std::vector<Device*> train;
  for (Device& device : devices) {
    if (device.Begin(train.size() < 4 ? kAnswer : kPerhaps)) train.push_back(&device);
  }
  ASSERT_EQ(train.size(), 4u);
  ASSERT_TRUE(Order(*coordinator, "1", admin::Action::kPause).ok());
  EXPECT_EQ(train[0]->Count(kAnswer), 0u);
  EXPECT_EQ(train[1]->Count(kAnswer), 0u);
  EXPECT_EQ(train[2]->Count(), std::nullopt) << "no round is open";
  EXPECT_TRUE(train[2]->trains());
  coordinator->Suspend();
  ASSERT_TRUE(coordinator->Wait().ok());

  coordinator = StartTiny(options(true));
  for (Device& device : devices) device.Follow(*coordinator);
  EXPECT_EQ(train[3]->Count(), std::nullopt);
  EXPECT_TRUE(train[3]->trains());
  ASSERT_TRUE(Order(*coordinator, "2", admin::Action::kResume).ok());
  EXPECT_EQ(train[3]->Count(kAnswer), 1u);
  EXPECT_EQ(train[2]->Count(kAnswer), 1u);
  Work(devices, [] {});
  ASSERT_TRUE(coordinator->Wait().ok());
  EXPECT_EQ(HistoryOf(folder).completed(), Round(kStepRounds));
}

TEST(Steps, ARunThatWasResumedFromItsCheckpointBeginsWithNewClients) {
  const TemporaryFolder folder;
  const auto options = [&](bool resume) {
    Options made = Durable(folder.path(), resume);
    made.config.durability = "checkpoint";
    made.config.checkpoint_every = 1;
    return made;
  };
  {
    const auto coordinator = StartTiny(options(false));
    std::vector<Device> devices = Devices(*coordinator);
    int counted = 0;
    Work(devices, [&] {
      if (++counted == 5) coordinator->Interrupt();
    });
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  {
    const auto coordinator = StartTiny(options(true));
    std::vector<Device> devices = Devices(*coordinator);
    Work(devices, [] {});
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  EXPECT_EQ(HistoryOf(folder).completed(), Round(kStepRounds));
  Options repeating = TinyOptions(folder.path() + "-again", kStepRounds);
  const TemporaryFolder again;
  repeating.run_dir = again.path();
  repeating.run = Durable("").run;
  repeating.replays = HistoryOf(folder).sessions().front().run;
  repeating.decisions = HistoryOf(folder).decisions();
  Finish(repeating);
  EXPECT_EQ(log::FirstDifference(HistoryOf(folder), HistoryOf(again)), std::nullopt);
}

}  // namespace
}  // namespace macaw::server
