#include "worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>

#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "algorithms/mean_delta.h"
#include "core/files.h"
#include "proto/fleet/client_table.h"
#include "testing/forwarding.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "training/api/trainer.h"
#include "training/backends.h"
#include "worker/lasting_fault.h"
#include "worker/running_marker.h"

// A real worker and a real server, with nothing but a function call between them.
namespace macaw::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::OnlyFused;
using testing_support::OptionsOf;
using testing_support::Registry;
using testing_support::StartServer;
using testing_support::SyntheticClients;
using testing_support::SyntheticRun;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

absl::Status Work(server::Coordinator& server, const data::Dataset& dataset, Options options,
                  std::stop_token stop = {}) {
  const auto link = fleet::MakeLocalLink(server);
  return worker::Run(options, dataset, *link, Registry(), OnlyFused(), stop);
}

struct Result {
  std::string digest, metrics;
  double test_loss = 0, first_loss = 0;
  explicit Result(const std::string& run_dir) : metrics(*ReadFile(run_dir + "/metrics.jsonl")) {
    const Json summary = Json::parse(*ReadFile(run_dir + "/summary.json"));
    digest = summary["model_digest"];
    test_loss = summary["final"]["test_loss"];
    for (const absl::string_view line : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
      const Json row = Json::parse(line);
      if (row.contains("test_loss") && first_loss == 0) first_loss = row["test_loss"];
    }
  }
};

Result RunWith(const data::Dataset& dataset, Options options, uint32_t rounds = 4) {
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(dataset, rounds), folder.path()));
  const absl::Status status = Work(*server, dataset, std::move(options));
  EXPECT_TRUE(status.ok()) << status;
  const auto outcome = server->Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return Result(folder.path());
}

TEST(Worker, GivesTheSameBytesWithAnyNumberOfSlots) {
  const auto dataset = SyntheticClients();
  const Result one = RunWith(*dataset, {.slots = 1});
  const Result three = RunWith(*dataset, {.slots = 3});
  EXPECT_EQ(one.digest, three.digest);
  EXPECT_EQ(one.metrics, three.metrics);
  const Result slowed = RunWith(*dataset, {.slots = 3, .emulation = {.slowdown = {1, 4}}});
  EXPECT_EQ(one.digest, slowed.digest) << "time decides where, never what";
  EXPECT_EQ(one.metrics, slowed.metrics);
}

TEST(Worker, KeepsTheStatesOfItsClients) {
  const auto dataset = SyntheticClients();
  const auto run = [&](Options options) {
    const TemporaryFolder folder;
    RunPlan config = SyntheticRun(*dataset, 5);
    config.algorithm.name = "scaffold";
    options.state.path = folder / "state";
    const auto server = StartServer(OptionsOf(config, folder.path()));
    const absl::Status status = Work(*server, *dataset, std::move(options));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(server->Wait().ok());
    const Json summary = Json::parse(*ReadFile(folder / "summary.json"));
    return std::pair<std::string, std::string>(summary["model_digest"],
                                               summary.value("state_digest", ""));
  };
  const auto one = run({.slots = 1});
  EXPECT_EQ(one.second.size(), 64u);
  EXPECT_EQ(run({.slots = 3}), one);
  Options memory{.slots = 2};
  memory.state.store = "memory";
  EXPECT_EQ(run(memory), one);
}

TEST(Worker, ReportsDittosGlobalLossAsFedAvgsAndThePersonalOneApart) {
  const auto dataset = SyntheticClients();
  const auto rows = [&](const std::string& algorithm) {
    const TemporaryFolder folder;
    RunPlan config = SyntheticRun(*dataset, 3);
    config.algorithm.name = algorithm;
    Options options{.slots = 2};
    options.state.path = folder / "state";
    server::Options told = OptionsOf(config, folder.path());
    told.config.client_records = true;
    const auto server = StartServer(std::move(told));
    const absl::Status status = Work(*server, *dataset, std::move(options));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(server->Wait().ok());
    std::vector<Json> parsed;
    for (const char* file : {"metrics.jsonl", "clients.jsonl"}) {
      const std::string text = *ReadFile(folder / file);
      for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
        parsed.push_back(Json::parse(line));
    }
    return parsed;
  };
  const std::vector<Json> ditto = rows("ditto"), fedavg = rows("fedavg");
  ASSERT_EQ(ditto.size(), fedavg.size());
  ASSERT_EQ(ditto.size(), 3u + 3 * 6);
  for (size_t i = 0; i < ditto.size(); ++i) {
    const std::string train = i < 3 ? "train_loss" : "loss";
    EXPECT_EQ(ditto[i][train], fedavg[i][train]) << ditto[i];
    EXPECT_TRUE(ditto[i].contains("personal_" + train)) << ditto[i];
    EXPECT_FALSE(fedavg[i].contains("personal_" + train));
  }
  // The personal models are ahead of the common one on their own rows.
  EXPECT_LT(ditto[2]["personal_train_loss"], ditto[2]["train_loss"]);
}

// Counts how often a worker gets a blob that it has not kept.
class CountingLink final : public fleet::ForwardingLink {
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

TEST(Worker, FetchesAChannelOnceAsLongAsItDoesNotChange) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  RunPlan config = SyntheticRun(*dataset, 4);
  config.algorithm.name = "based";
  const algorithms::Registry registry = RegistryWithABase();
  const auto server = StartServer(OptionsOf(config, folder.path()), registry);
  const auto link = fleet::MakeLocalLink(*server);
  CountingLink counting(*link);
  const absl::Status status =
      worker::Run({.slots = 2}, *dataset, counting, registry, OnlyFused(), {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(server->Wait().ok());
  for (const auto& [digest, times] : counting.fetched) EXPECT_EQ(times, 1) << digest.Hex();
  // The base, the model of each round, and the last one, which is evaluated.
  EXPECT_EQ(counting.fetched.size(), 1u + 4 + 1);
}

TEST(Worker, SharesARunWithOthers) {
  const auto dataset = SyntheticClients();
  const Result alone = RunWith(*dataset, {.slots = 2});
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 4), folder.path());
  options.config.workers = 2;
  const auto server = StartServer(std::move(options));
  absl::Status first;
  {
    const std::jthread beside(
        [&] { first = Work(*server, *dataset, {.name = "first", .slots = 1}); });
    const absl::Status second = Work(*server, *dataset, {.name = "second", .slots = 2});
    EXPECT_TRUE(second.ok()) << second;
  }
  EXPECT_TRUE(first.ok()) << first;
  ASSERT_TRUE(server->Wait().ok());
  const Result shared(folder.path());
  EXPECT_EQ(alone.digest, shared.digest);
  EXPECT_EQ(alone.metrics, shared.metrics);
}

TEST(Worker, LearnsSomething) {
  const auto dataset = SyntheticClients();
  const Result result = RunWith(*dataset, {.slots = 2}, 20);
  EXPECT_LT(result.test_loss, 0.9 * result.first_loss);
}

TEST(Worker, GivesItsClientsBackWhenAskedToStop) {
  const auto dataset = SyntheticClients();
  const Result undisturbed = RunWith(*dataset, {.slots = 2});
  const TemporaryFolder folder;
  absl::Notification under_way;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 4), folder.path());
  options.config.lease_timeout = 3600;  // only giving them back can free them in time
  options.on_row = [&](const std::string&) {
    if (!under_way.HasBeenNotified()) under_way.Notify();
  };
  const auto server = StartServer(std::move(options));
  absl::Status leaving;
  {
    // Slow enough to hold clients whenever it is asked.
    std::jthread first([&](std::stop_token stop) {
      leaving = Work(*server, *dataset,
                     {.name = "first",
                      .slots = 1,
                      .emulation = {.pause_probability = 1, .pause_seconds = 0.1}},
                     stop);
    });
    under_way.WaitForNotification();
    first.request_stop();
  }
  EXPECT_TRUE(leaving.ok()) << leaving;
  const absl::Status second = Work(*server, *dataset, {.name = "second", .slots = 2});
  EXPECT_TRUE(second.ok()) << second;
  ASSERT_TRUE(server->Wait().ok());
  const Result result(folder.path());
  EXPECT_EQ(undisturbed.digest, result.digest);
  EXPECT_EQ(undisturbed.metrics, result.metrics);
  EXPECT_THAT(*ReadFile(folder / "events.jsonl"), HasSubstr("it left"));
}

TEST(Worker, StopsAtOnceWhileItWaitsForWork) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 2), folder.path());
  options.config.workers = 2;  // the second never comes
  const auto server = StartServer(std::move(options));
  absl::Status status = absl::UnknownError("did not return");
  {
    std::jthread waiting(
        [&](std::stop_token stop) { status = Work(*server, *dataset, {.slots = 1}, stop); });
    // It has registered once the server has noted it.
    while (ReadFile(folder / "events.jsonl")->find("worker_joined") == std::string::npos)
      std::this_thread::yield();
    waiting.request_stop();
  }
  EXPECT_TRUE(status.ok()) << status;
  server->Interrupt();
  EXPECT_EQ(server->Wait()->kind, server::Outcome::Kind::kInterrupted);
}

TEST(Worker, ReportsTheClientsThatItsFormerProcessDiedWith) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 2), folder.path());
  options.config.max_deaths = 1;
  const auto server = StartServer(std::move(options));
  // A first process registers by hand, takes a client and dies with it.
  const auto link = fleet::MakeLocalLink(*server);
  fleet::ClientTable table;
  for (uint64_t k = 0; k < dataset->info().clients; ++k)
    table.rows.push_back(dataset->Examples(ClientId(k), data::Split::kTrain));
  const training::TrainerSetup setup;
  const auto registered = link->Register({.name = "fragile",
                                          .incarnation = 1,
                                          .profile = *training::FusedBackend().Profile(setup),
                                          .input_shape = dataset->info().input_shape,
                                          .classes = dataset->info().classes,
                                          .data_digest = dataset->info().digest,
                                          .clients = dataset->info().clients,
                                          .table = fleet::Blob::Of(table.Encode()),
                                          .central_test_rows = dataset->info().test_examples,
                                          .central_test_digest = dataset->info().digest});
  ASSERT_TRUE(registered.ok()) << registered.status();
  const auto lease =
      link->Lease({.session = registered->session, .wanted = 1, .wait = std::chrono::seconds(20)});
  ASSERT_TRUE(lease.ok() && lease->training.has_value());
  const fleet::Assignment& taken = lease->training->assignments.front();
  {
    auto marker = RunningMarker::Open(folder / "scratch", "fragile", 1);
    ASSERT_TRUE(marker.ok()) << marker.status();
    marker->Started(0, {taken.client, taken.fence});
  }
  const absl::Status successor =
      Work(*server, *dataset, {.name = "fragile", .scratch_dir = folder / "scratch"});
  ASSERT_TRUE(successor.ok()) << "the server ends the run, the worker just leaves: " << successor;
  EXPECT_THAT(server->Wait().status().ToString(),
              HasSubstr(absl::StrCat("client ", taken.client.value, " was being trained")));
}

TEST(Worker, MakesARunThatDivergesStopWithTheReason) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 9), folder.path());
  options.run.local.lr = 1e30;
  const auto server = StartServer(std::move(options));
  const absl::Status status = Work(*server, *dataset, {.slots = 2});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(server->Wait().status().ToString(),
              AllOf(HasSubstr("round 5"), HasSubstr("all 6 clients"), HasSubstr("delta")));
}

TEST(Worker, RefusesAConfigurationThatCannotTrainBeforeItTakesAClient) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 3), folder.path());
  options.run.task = TaskKind::kRegression;  // of rows that have classes
  options.run.model.classes = 1;
  const auto server = StartServer(std::move(options));
  const absl::Status status = Work(*server, *dataset, {.slots = 2});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("client 0"), HasSubstr("before the run"), HasSubstr("run.task")));
  server->Interrupt();
  EXPECT_EQ(server->Wait()->rounds, 0u);
}

TEST(Worker, SaysWhyTheServerDoesNotTakeIt) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 2), folder.path());
  options.run.clients = 13;
  const auto server = StartServer(std::move(options));
  EXPECT_THAT(Work(*server, *dataset, {.slots = 1}).ToString(),
              AllOf(HasSubstr("worker-0"), HasSubstr("12 clients"), HasSubstr("13")));
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

TEST(Worker, TellsWithAHeartbeatWhichClientsWereLeftOutAndWhy) {
  const auto [left_out, events] = OfDiverging({.slots = 1});
  ASSERT_FALSE(left_out.empty());
  EXPECT_EQ(left_out[0].reason, fleet::LeftOutReason::kOutOfBound);
  EXPECT_THAT(left_out[0].message, HasSubstr("channel 'delta'"));
  EXPECT_THAT(events, HasSubstr("channel 'delta'"));
}

TEST(Worker, KeepsTheWordsOfErrorsToItselfWhereItsOwnerWantsThat) {
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

TEST(Worker, SendsHeartbeatsAsOftenAsTheServerAsksFor) {
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

TEST(Worker, RepeatsACommitWhoseAnswerWasLostAndIsCountedOnce) {
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

TEST(Worker, AsksAgainWhatACommitAskedInVain) {
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

TEST(Worker, RegistersAgainWhenTheServerHasForgottenIt) {
  const auto dataset = SyntheticClients();
  const Result undisturbed = RunWith(*dataset, {.slots = 2});
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 4), folder.path());
  options.config.lease_timeout = 1;  // what the forgotten session held comes back by itself
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

TEST(Worker, GivesUpOnAServerThatStaysSilent) {
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

// FedAvg whose client half fails from round 2 on.
class FailsLater final : public algorithms::DeltaClient {
 public:
  FailsLater(const algorithms::Setup& setup, absl::Status failure)
      : DeltaClient(setup), failure_(std::move(failure)) {}
  absl::StatusOr<algorithms::ClientResult> Conclude(
      const algorithms::ClientContext& context, std::span<const training::StageOutcome> outcomes,
      algorithms::Workspace& workspace) const override {
    if (context.round.value >= 2) return failure_;
    return DeltaClient::Conclude(context, outcomes, workspace);
  }

 private:
  const absl::Status failure_;
};

struct WorkersEnd {
  absl::Status status;
  bool left = false;  // it told the server
};

// How a worker ends whose rule fails so.
WorkersEnd EndOfAWorkerWith(const absl::Status& failure) {
  algorithms::Description rule = **Registry().Find("fedavg");
  rule.name = "fails";
  rule.client = [failure](const algorithms::Setup& setup)
      -> absl::StatusOr<std::unique_ptr<algorithms::ClientAlgorithm>> {
    return std::make_unique<FailsLater>(setup, failure);
  };
  algorithms::Registry registry;
  EXPECT_TRUE(registry.Add(std::move(rule)).ok());
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  RunPlan config = SyntheticRun(*dataset, 4);
  config.algorithm.name = "fails";
  const auto server = StartServer(OptionsOf(config, folder.path()), registry);
  const auto link = fleet::MakeLocalLink(*server);
  const absl::Status status = worker::Run({.slots = 2}, *dataset, *link, registry, OnlyFused(), {});
  server->Interrupt();
  EXPECT_EQ(server->Wait()->rounds, 1u);
  const std::string events = *ReadFile(folder / "events.jsonl");
  return {.status = status, .left = events.find("it left") != std::string::npos};
}

TEST(Worker, TellsAFaultThatWouldComeAgainFromOneThatMayBeGoneAtTheNextStart) {
  const WorkersEnd lasting = EndOfAWorkerWith(absl::InvalidArgumentError("a mistake of the rule"));
  EXPECT_TRUE(IsLastingFault(lasting.status)) << lasting.status;
  EXPECT_TRUE(absl::IsFailedPrecondition(lasting.status)) << "exit code 2: it is not started again";
  EXPECT_THAT(std::string(lasting.status.message()),
              AllOf(HasSubstr("client "), HasSubstr("a mistake of the rule")));
  EXPECT_TRUE(lasting.left);
  const WorkersEnd moment = EndOfAWorkerWith(absl::InternalError("its process was killed"));
  EXPECT_FALSE(IsLastingFault(moment.status));
  EXPECT_TRUE(absl::IsAborted(moment.status)) << moment.status;
  EXPECT_FALSE(moment.left) << "its successor comes at once, and its leases tell what it died with";
}

}  // namespace
}  // namespace macaw::worker
