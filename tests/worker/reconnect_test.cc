// The server's process dies in the middle of a call and another one takes its place at the same
// address, with the sessions and the open round of the first, as a server with durable commits has
// them. The worker goes on in its session.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/files.h"
#include "proto/wire/remote.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "testing/test_address.h"
#include "tests/worker/synthetic_run.h"
#include "worker/worker.h"

namespace macaw::worker {
namespace {

using fixtures::OnlyFused;
using fixtures::OptionsOf;
using fixtures::Registry;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using testing_support::TemporaryFolder;

// Where the server dies.
enum class Moment : uint8_t {
  kLease,          // a poll has come, nothing has been leased
  kOffer,          // an upload has been asked for; its bytes are on their way
  kCommit,         // a commit with sums has come and is not counted
  kCommitCounted,  // it is counted, and the answer is lost
  kHeartbeat,      // clients are queued
};

// Between the wire and the server of the run. At the chosen moment it stops answering and says so;
// the test then ends the wire server, which is all that a worker sees of a process.
class DyingServer final : public fleet::ForwardingHandler {
 public:
  using ForwardingHandler::ForwardingHandler;

  // The next such call kills the server, or one that comes after so many others of its kind.
  void DieAt(Moment moment, int after = 0) {
    absl::MutexLock lock(&mutex_);
    moment_ = moment;
    after_ = after;
    dead_ = false;
  }
  // False when the worker has ended before.
  bool AwaitDeath() {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return dead_ || left_; };
    mutex_.Await(absl::Condition(&over));
    return dead_;
  }
  void WorkerLeft() {
    absl::MutexLock lock(&mutex_);
    left_ = true;
  }
  int registrations() {
    absl::MutexLock lock(&mutex_);
    return registrations_;
  }
  std::vector<fleet::HeartbeatRequest> heartbeats() {
    absl::MutexLock lock(&mutex_);
    return heartbeats_;
  }
  // How often each commit came.
  std::map<uint64_t, int> commits() {
    absl::MutexLock lock(&mutex_);
    return commits_;
  }
  int offers() {
    absl::MutexLock lock(&mutex_);
    return offers_;
  }

  void Register(const fleet::Caller& caller, fleet::RegisterRequest request,
                fleet::Reply<fleet::RegisterReply> reply) override {
    {
      absl::MutexLock lock(&mutex_);
      ++registrations_;
    }
    ForwardingHandler::Register(
        caller, std::move(request),
        [reply = std::move(reply)](absl::StatusOr<fleet::RegisterReply> made) mutable {
          if (made.ok()) {  // a test has less time than a fleet
            made->heartbeat_every = std::chrono::milliseconds(5);
            made->reconnect_every = std::chrono::milliseconds(10);
          }
          std::move(reply)(std::move(made));
        });
  }
  void Lease(const fleet::Caller& caller, fleet::LeaseRequest request,
             fleet::Reply<fleet::LeaseReply> reply) override {
    if (IsDead()) return Keep<fleet::LeaseReply>(std::move(reply));
    if (IsTheCall(Moment::kLease)) return DieWith<fleet::LeaseReply>(std::move(reply));
    ForwardingHandler::Lease(caller, std::move(request), std::move(reply));
  }
  void Heartbeat(const fleet::Caller& caller, fleet::HeartbeatRequest request,
                 fleet::Reply<fleet::HeartbeatReply> reply) override {
    if (IsDead()) return Keep<fleet::HeartbeatReply>(std::move(reply));
    {
      absl::MutexLock lock(&mutex_);
      heartbeats_.push_back(request);
    }
    if (!request.held.empty() && IsTheCall(Moment::kHeartbeat))
      return DieWith<fleet::HeartbeatReply>(std::move(reply));
    ForwardingHandler::Heartbeat(caller, std::move(request), std::move(reply));
  }
  void Commit(const fleet::Caller& caller, fleet::CommitRequest request,
              fleet::Reply<fleet::CommitReply> reply) override {
    if (IsDead()) return Keep<fleet::CommitReply>(std::move(reply));
    {
      absl::MutexLock lock(&mutex_);
      ++commits_[request.commit_id];
    }
    const bool has_sums = request.part.has_value() && request.part->sums.named();
    if (has_sums && IsTheCall(Moment::kCommit))
      return DieWith<fleet::CommitReply>(std::move(reply));
    if (!IsTheCall(Moment::kCommitCounted))
      return ForwardingHandler::Commit(caller, std::move(request), std::move(reply));
    Keep<fleet::CommitReply>(std::move(reply));
    request.ask.reset();  // what it asks is asked again
    ForwardingHandler::Commit(
        caller, std::move(request), [this](absl::StatusOr<fleet::CommitReply> counted) {
          EXPECT_TRUE(counted.ok() && counted->verdict == fleet::Verdict::kAccepted);
          Die();
        });
  }
  void Offer(const fleet::Caller& caller, fleet::UploadOffer offer,
             fleet::Reply<fleet::UploadVerdict> reply) override {
    if (IsDead()) return Keep<fleet::UploadVerdict>(std::move(reply));
    ForwardingHandler::Offer(caller, offer, std::move(reply));
    if (offer.purpose != fleet::BlobPurpose::kSums) return;
    {
      absl::MutexLock lock(&mutex_);
      ++offers_;
    }
    if (IsTheCall(Moment::kOffer)) Die();
  }

 private:
  bool IsDead() {
    absl::MutexLock lock(&mutex_);
    return dead_;
  }
  bool IsTheCall(Moment moment) {
    absl::MutexLock lock(&mutex_);
    if (moment_ != moment || after_-- > 0) return false;
    moment_.reset();
    return true;
  }
  // An answer that nobody will hear.
  template <typename T>
  void Keep(fleet::Reply<T> reply) {
    absl::MutexLock lock(&mutex_);
    unanswered_.push_back(std::make_shared<fleet::Reply<T>>(std::move(reply)));
  }
  void Die() {
    absl::MutexLock lock(&mutex_);
    dead_ = true;
  }
  template <typename T>
  void DieWith(fleet::Reply<T> reply) {
    Keep<T>(std::move(reply));
    Die();
  }

  absl::Mutex mutex_;
  std::optional<Moment> moment_ ABSL_GUARDED_BY(mutex_);
  int after_ ABSL_GUARDED_BY(mutex_) = 0;
  bool dead_ ABSL_GUARDED_BY(mutex_) = false, left_ ABSL_GUARDED_BY(mutex_) = false;
  int registrations_ ABSL_GUARDED_BY(mutex_) = 0, offers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<fleet::HeartbeatRequest> heartbeats_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int> commits_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<void>> unanswered_ ABSL_GUARDED_BY(mutex_);
};

// Says which clients' training rows have been read.
class WatchedDataset final : public data::Dataset {
 public:
  explicit WatchedDataset(const data::Dataset& dataset) : dataset_(dataset) {}
  const data::DatasetInfo& info() const override { return dataset_.info(); }
  uint32_t Examples(ClientId client, data::Split split) const override {
    return dataset_.Examples(client, split);
  }
  absl::StatusOr<data::Rows> Client(ClientId client, data::Split split) const override {
    if (split == data::Split::kTrain) {
      absl::MutexLock lock(&mutex_);
      read_.insert(client);
    }
    return dataset_.Client(client, split);
  }
  data::Rows CentralTest() const override { return dataset_.CentralTest(); }

  void AwaitRead(const std::set<ClientId>& clients) {
    absl::MutexLock lock(&mutex_);
    const auto all = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return std::ranges::includes(read_, clients);
    };
    mutex_.Await(absl::Condition(&all));
  }

 private:
  const data::Dataset& dataset_;
  mutable absl::Mutex mutex_;
  mutable std::set<ClientId> read_ ABSL_GUARDED_BY(mutex_);
};

class Reconnect : public testing::Test {
 protected:
  static constexpr uint32_t kRounds = 6;

  std::string DigestIn(const std::string& run_dir) {
    return nlohmann::json::parse(*ReadFile(run_dir + "/summary.json"))["model_digest"];
  }
  std::string Undisturbed() {
    const TemporaryFolder folder;
    const auto server = StartServer(OptionsOf(SyntheticRun(*dataset_, kRounds), folder.path()));
    const auto link = fleet::MakeLocalLink(*server);
    EXPECT_TRUE(worker::Run({.slots = 2}, *dataset_, *link, Registry(), OnlyFused(), {}).ok());
    EXPECT_TRUE(server->Wait().ok());
    return DigestIn(folder.path());
  }

  std::unique_ptr<wire::FleetServer> Listen(fleet::FleetHandler& handler) {
    // Sums are too large for a message, as those of a real model are.
    auto server = wire::FleetServer::Start(
        {.listen = socket_.address(), .max_inline_bytes = 1024, .share_memory = false}, handler);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }

  // Runs with a server that dies at such moments; `while_dead` is called while there is none. How
  // often it died.
  template <typename WhileDead>
  int RunWithDeathsAt(Moment moment, const Options& options, WhileDead while_dead) {
    const TemporaryFolder folder;
    const auto run = StartServer(OptionsOf(SyntheticRun(*dataset_, kRounds), folder.path()));
    DyingServer server(*run);
    std::unique_ptr<wire::FleetServer> process = Listen(server);
    const auto link = *wire::Dial({.server = socket_.address(), .share_memory = false});
    absl::Status status;
    int deaths = 0;
    server.DieAt(moment);
    {
      const std::jthread worker([&] {
        status = worker::Run(options, watched_, *link, Registry(), OnlyFused(), {});
        server.WorkerLeft();
      });
      while (server.AwaitDeath()) {
        process.reset();
        while_dead(server);
        server.DieAt(moment, /*after=*/2);
        ++deaths;
        process = Listen(server);
      }
    }
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(run->Wait().ok());
    EXPECT_EQ(DigestIn(folder.path()), Undisturbed());
    EXPECT_EQ(server.registrations(), 1) << "the session goes on";
    commits_ = server.commits();
    offers_ = server.offers();
    heartbeats_ = server.heartbeats();
    return deaths;
  }
  int RunWithDeathsAt(Moment moment) {
    return RunWithDeathsAt(moment, {.slots = 2}, [](DyingServer&) {});
  }
  int RepeatedCommits() const {
    return static_cast<int>(
        std::ranges::count_if(commits_, [](const auto& commit) { return commit.second > 1; }));
  }

  const std::unique_ptr<data::Dataset> dataset_ = SyntheticClients();
  WatchedDataset watched_{*dataset_};
  const wire::SocketFolder socket_;
  std::map<uint64_t, int> commits_;
  int offers_ = 0;
  std::vector<fleet::HeartbeatRequest> heartbeats_;
};

// A commit arrives once its sums are there, so a repeated one has brought them to both servers.
TEST_F(Reconnect, ACommitThatTheServerDiedWithIsRepeatedUnderItsNumberWithItsSums) {
  const int deaths = RunWithDeathsAt(Moment::kCommit);
  EXPECT_GE(deaths, 2);
  EXPECT_EQ(RepeatedCommits(), deaths);
  EXPECT_GE(offers_, static_cast<int>(kRounds) + deaths) << "the sums, once for each server";
}

TEST_F(Reconnect, ACommitWhoseAnswerDiedIsCountedOnce) {
  EXPECT_GE(RunWithDeathsAt(Moment::kCommitCounted), 2);
}

TEST_F(Reconnect, SumsThatAreOnTheirWayWhenTheServerDiesCountOnce) {
  EXPECT_GE(RunWithDeathsAt(Moment::kOffer), 2);
}

TEST_F(Reconnect, APollIsAskedAgain) { EXPECT_GE(RunWithDeathsAt(Moment::kLease), 1); }

TEST_F(Reconnect, AWorkerTrainsOnWhileThereIsNoServerAndSaysSoAfterwards) {
  Options slow{.slots = 1};  // so that some clients wait in its queue
  slow.emulation.pause_probability = 1;
  slow.emulation.pause_seconds = 0.02;
  const int deaths = RunWithDeathsAt(Moment::kHeartbeat, slow, [&](DyingServer& server) {
    std::set<ClientId> queued;
    const std::vector<Attempt> held = server.heartbeats().back().held;
    for (const Attempt& attempt : held) queued.insert(attempt.client);
    ASSERT_FALSE(queued.empty());
    watched_.AwaitRead(queued);
  });
  EXPECT_GE(deaths, 1);
  uint64_t progress = 0;
  for (const fleet::HeartbeatRequest& beat : heartbeats_) {
    EXPECT_GE(beat.progress, progress);
    progress = beat.progress;
  }
  EXPECT_GT(progress, heartbeats_.front().progress);
}

}  // namespace
}  // namespace macaw::worker
