#include "worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>

#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "algorithms/mean_delta.h"
#include "core/files.h"
#include "proto/fleet/client_table.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "tests/worker/whole_run.h"
#include "training/api/trainer.h"
#include "training/backends.h"
#include "worker/lasting_fault.h"
#include "worker/running_marker.h"

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
using fixtures::Work;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::TemporaryFolder;
using Json = nlohmann::json;

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

TEST(Worker, SendsAPartForEachClientThatIsLeftOutOnce) {
  const auto dataset = SyntheticClients();
  const Result plain = RunWith(*dataset, {.slots = 2});
  const auto run = [&](const Options& options) {
    const TemporaryFolder folder;
    RunPlan config = SyntheticRun(*dataset, 4);
    config.evaluation.leave_one_out = 2;
    const auto server = StartServer(OptionsOf(config, folder.path()));
    const absl::Status status = Work(*server, *dataset, options);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(server->Wait().ok());
    EXPECT_EQ(Result(folder.path()).digest, plain.digest);
    return *ReadFile(folder / "contributions.jsonl");
  };
  const std::string one = run({.slots = 1});
  EXPECT_EQ(run({.slots = 3}), one);
  EXPECT_EQ(run({.slots = 2, .emulation = {.slowdown = {1, 4}}}), one);
  const std::vector<std::string> lines = absl::StrSplit(one, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) {
    const Json round = Json::parse(line);
    EXPECT_EQ(round["client"].size(), 6u);
    for (const Json& loss : round["test_loss"]) EXPECT_GT(loss, 0);
    for (const Json& delta : round["delta_test_loss"]) EXPECT_TRUE(delta.is_number());
  }
}

// With the rest of the round in one part.
TEST(Worker, SendsTheClientsApartThatAreUnlearned) {
  const auto dataset = SyntheticClients();
  const Result plain = RunWith(*dataset, {.slots = 2});
  const auto run = [&](const Options& options) {
    const TemporaryFolder folder;
    RunPlan config = SyntheticRun(*dataset, 4);
    config.evaluation.unlearn = {0, 1, 2, 3, 4, 5};
    const auto server = StartServer(OptionsOf(config, folder.path()));
    const absl::Status status = Work(*server, *dataset, options);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(server->Wait().ok());
    EXPECT_EQ(Result(folder.path()).digest, plain.digest);
    return *ReadFile(folder / "contributions.jsonl");
  };
  const std::string one = run({.slots = 1});
  EXPECT_EQ(run({.slots = 3}), one);
  const std::vector<std::string> lines = absl::StrSplit(one, '\n', absl::SkipEmpty());
  ASSERT_FALSE(lines.empty());
  const Json last = Json::parse(lines.back());
  EXPECT_GE(last["unlearned_client"].size(), 1u);
  for (const Json& loss : last["unlearned_test_loss"]) EXPECT_GT(loss, 0);
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
  for (ClientId client; client.value < dataset->info().clients; ++client.value) {
    table.rows.push_back(dataset->Examples(client, data::Split::kTrain));
    table.test_rows.push_back(dataset->Examples(client, data::Split::kTest));
  }
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
              HasSubstr(absl::StrCat("client ", taken.client.value, ": its worker died")));
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
  // So the server does not wait for it at the end of the run.
  EXPECT_THAT(*ReadFile(folder / "events.jsonl"), HasSubstr("it left"));
}

TEST(Worker, RefusesToCropRowsThatAreNoImages) {
  const auto dataset = SyntheticClients();
  const TemporaryFolder folder;
  server::Options options = OptionsOf(SyntheticRun(*dataset, 3), folder.path());
  options.run.transform.pad_crop = 2;
  const auto server = StartServer(std::move(options));
  const absl::Status status = Work(*server, *dataset, {.slots = 2});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("data.augment needs images"));
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
