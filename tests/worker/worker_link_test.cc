// A worker behind links that count, listen, hurry or break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "algorithms/mean_delta.h"
#include "core/files.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "tests/worker/whole_run.h"
#include "worker/worker.h"

namespace macaw::worker {
namespace {

using fixtures::OnlyFused;
using fixtures::OptionsOf;
using fixtures::Registry;
using fixtures::Result;
using fixtures::RunWith;
using fixtures::StartServer;
using fixtures::SyntheticClients;
using fixtures::SyntheticRun;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

// Counts how often a worker gets a blob that it has not kept.
class FetchedLink final : public fleet::ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;
  std::map<Digest, int> fetched;

  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) override {
    ++fetched[blob.digest];
    return ForwardingLink::Fetch(blob);
  }
};

// FedAvg that also sends a vector which never changes.
class WithABase final : public algorithms::MeanDeltaServer {
 public:
  WithABase(const algorithms::Setup& setup, FlatVector model)
      : MeanDeltaServer(setup, std::move(model)), base_(setup.layout) {}
  absl::StatusOr<algorithms::Broadcast> Configure(const algorithms::ServerContext&) const override {
    return algorithms::Broadcast{{"model", Model()}, {"base", base_.view()}};
  }

 private:
  const FlatVector base_;
};

algorithms::Registry RegistryWithABase() {
  algorithms::Description rule = **Registry().Find("fedavg");
  rule.name = "based";
  rule.schema = [](const algorithms::Setup& setup) -> absl::StatusOr<algorithms::Schema> {
    algorithms::Schema schema = algorithms::MeanDeltaSchema(setup);
    schema.down.push_back({.name = "base", .layout = setup.layout});
    return schema;
  };
  rule.server = algorithms::MakeServer<WithABase>;
  algorithms::Registry registry;
  EXPECT_TRUE(registry.Add(std::move(rule)).ok());
  return registry;
}

TEST(WorkerLink, FetchesAChannelOnceAsLongAsItDoesNotChange) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  RunPlan config = SyntheticRun(*dataset, 4);
  config.algorithm.name = "based";
  const algorithms::Registry registry = RegistryWithABase();
  const auto server = StartServer(OptionsOf(config, folder.path()), registry);
  const auto link = fleet::MakeLocalLink(*server);
  FetchedLink counting(*link);
  const absl::Status status =
      worker::Run({.slots = 2}, *dataset, counting, registry, OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(server->Wait().ok());
  for (const auto& [digest, times] : counting.fetched) EXPECT_EQ(times, 1) << digest.Hex();
  // The base, the model of each round, and the last one, which is evaluated.
  EXPECT_EQ(counting.fetched.size(), 1u + 4 + 1);
}

// Remembers what the worker says of clients ahead of its parts.
class ListeningLink final : public fleet::ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;
  std::vector<fleet::LeftOut> left_out;

  absl::StatusOr<fleet::HeartbeatReply> Heartbeat(const fleet::HeartbeatRequest& request) override {
    left_out.insert(left_out.end(), request.left_out.begin(), request.left_out.end());
    return ForwardingLink::Heartbeat(request);
  }
};

// What the server hears of clients that diverge.
std::pair<std::vector<fleet::LeftOut>, std::string> OfDiverging(Options options) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  RunPlan config = SyntheticRun(*dataset, 1);
  config.local.lr = 1e30;
  const auto server = StartServer(OptionsOf(config, folder.path()));
  const auto local = fleet::MakeLocalLink(*server);
  ListeningLink link(*local);
  const absl::Status status = worker::Run(options, *dataset, link, Registry(), OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(server->Wait().ok()) << "all clients of the only round were lost";
  return {link.left_out, *ReadFile(folder / "events.jsonl")};
}

TEST(WorkerLink, TellsWithAHeartbeatWhichClientsWereLeftOutAndWhy) {
  const auto [left_out, events] = OfDiverging({.slots = 1});
  ASSERT_FALSE(left_out.empty());
  EXPECT_EQ(left_out[0].reason, fleet::LeftOutReason::kOutOfBound);
  EXPECT_THAT(left_out[0].message, HasSubstr("channel 'delta'"));
  EXPECT_THAT(events, HasSubstr("channel 'delta'"));
}

TEST(WorkerLink, KeepsTheWordsOfErrorsToItselfWhereItsOwnerWantsThat) {
  const auto [left_out, events] = OfDiverging({.slots = 1, .redact_errors = true});
  ASSERT_FALSE(left_out.empty());
  EXPECT_EQ(left_out[0].reason, fleet::LeftOutReason::kOutOfBound);
  EXPECT_THAT(left_out[0].message, HasSubstr("node.redact_errors"));
  EXPECT_THAT(events, AllOf(HasSubstr("node.redact_errors"), testing::Not(HasSubstr("delta"))));
}

// Asks for heartbeats a thousand times a second, and stops the worker after many of them. At its
// own pace it would send one a second.
class HurriedLink final : public fleet::ForwardingLink {
 public:
  HurriedLink(fleet::FleetLink& link, std::stop_source& stop) : ForwardingLink(link), stop_(stop) {}

  absl::StatusOr<fleet::HeartbeatReply> Heartbeat(const fleet::HeartbeatRequest& request) override {
    auto reply = ForwardingLink::Heartbeat(request);
    if (reply.ok()) reply->heartbeat_every = std::chrono::milliseconds(1);
    if (++heartbeats == 500) stop_.request_stop();
    return reply;
  }
  std::atomic<int> heartbeats = 0;

 private:
  std::stop_source& stop_;
};

TEST(WorkerLink, SendsHeartbeatsAsOftenAsTheServerAsksFor) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 1), folder.path());
  options.config.workers = 2;  // the second one never comes
  const auto server = StartServer(std::move(options));
  const auto local = fleet::MakeLocalLink(*server);
  std::stop_source stop;
  HurriedLink link(*local, stop);
  const absl::Status status =
      worker::Run({.slots = 1}, *dataset, link, Registry(), OnlyFused(), stop.get_token());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GE(link.heartbeats, 500);
}

// A server that is gone, or back with another memory.
class BrokenLink final : public fleet::ForwardingLink {
 public:
  explicit BrokenLink(std::unique_ptr<fleet::FleetLink> link)
      : ForwardingLink(*link), link_(std::move(link)) {}
  absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request) override {
    ++registrations;
    return link_->Register(request);
  }
  absl::StatusOr<fleet::LeaseReply> Lease(const fleet::LeaseRequest& request) override {
    if (lease_error.has_value()) return *lease_error;
    if (++leases == forget_at) return fleet::LeaseReply{.next = fleet::Next::kRegister};
    return link_->Lease(request);
  }
  absl::StatusOr<fleet::CommitReply> Commit(const fleet::CommitRequest& request) override {
    // The first answer of every commit is lost on the way back.
    fleet::CommitRequest passed_on = request;
    if (drop_questions) passed_on.ask.reset();
    auto reply = link_->Commit(passed_on);
    if (reply.ok() && reply->lease.has_value() && ++leases == forget_at)
      reply->lease = fleet::LeaseReply{.next = fleet::Next::kRegister};
    if (lose_answers && request.commit_id != answered_) {
      answered_ = request.commit_id;
      return absl::DeadlineExceededError("lost");
    }
    return reply;
  }

  std::optional<absl::Status> lease_error;
  int leases = 0, forget_at = -1;
  int registrations = 0;
  bool lose_answers = false;
  bool drop_questions = false;  // a server that answers only what Lease asks

 private:
  std::unique_ptr<fleet::FleetLink> link_;
  uint64_t answered_ = 0;
};

TEST(WorkerLink, RepeatsACommitWhoseAnswerWasLostAndIsCountedOnce) {
  const auto dataset = SyntheticClients();
  const Result undisturbed = RunWith(*dataset, {.slots = 2});
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 4), folder.path()));
  BrokenLink link(fleet::MakeLocalLink(*server));
  link.lose_answers = true;
  const absl::Status status =
      worker::Run({.slots = 2}, *dataset, link, Registry(), OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_TRUE(server->Wait().ok());
  EXPECT_EQ(undisturbed.digest, Result(folder.path()).digest);
  EXPECT_EQ(undisturbed.metrics, Result(folder.path()).metrics);
}

TEST(WorkerLink, AsksAgainWhatACommitAskedInVain) {
  const auto dataset = SyntheticClients();
  const Result undisturbed = RunWith(*dataset, {.slots = 2});
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 4), folder.path()));
  BrokenLink link(fleet::MakeLocalLink(*server));
  link.drop_questions = true;
  const absl::Status status =
      worker::Run({.slots = 2}, *dataset, link, Registry(), OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_TRUE(server->Wait().ok());
  EXPECT_EQ(undisturbed.digest, Result(folder.path()).digest);
}

TEST(WorkerLink, RegistersAgainWhenTheServerHasForgottenIt) {
  const auto dataset = SyntheticClients();
  const Result undisturbed = RunWith(*dataset, {.slots = 2});
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 4), folder.path());
  options.config.lease_timeout = 5;  // what the forgotten session held comes back by itself
  const auto server = StartServer(std::move(options));
  BrokenLink link(fleet::MakeLocalLink(*server));
  link.forget_at = 3;
  const absl::Status status =
      worker::Run({.slots = 2}, *dataset, link, Registry(), OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(link.registrations, 2);
  ASSERT_TRUE(server->Wait().ok());
  EXPECT_EQ(undisturbed.digest, Result(folder.path()).digest);
}

TEST(WorkerLink, GivesUpOnAServerThatStaysSilent) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(*dataset, 2), folder.path()));
  BrokenLink link(fleet::MakeLocalLink(*server));
  link.lease_error = absl::UnavailableError("connection refused");
  const absl::Status status = worker::Run({.slots = 1, .reconnect_for = FromSeconds(0.2)}, *dataset,
                                          link, Registry(), OnlyFused(), {});
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("has not answered for 0.2 s"), HasSubstr("connection refused")));
}

}  // namespace
}  // namespace macaw::worker
