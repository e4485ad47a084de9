#include "proto/fleet/client_table.h"
#include "server/log/history.h"
#include "tests/server/liar.h"

// A device that sends false values in every field, beside honest workers, over a real socket. Its
// client is its own to leave out, and the rounds do without it. Nothing else that it says changes a
// bit: a simulation that does without the same clients ends with the same model.
namespace macaw::server {
namespace {

// The tiny run with a ninth client, which has one row more than the eighth.
std::vector<uint32_t> NineExamples() {
  std::vector<uint32_t> examples = testing_support::TinyExamples();
  examples.push_back(examples.back() + 1);
  return examples;
}

Options NineClients(const std::string& run_dir) {
  Options options = TinyOptions(run_dir, kRounds);
  options.run.clients = options.run.train_examples = 0;  // as many as the nodes bring
  return options;
}

log::History HistoryOf(const TemporaryFolder& folder) {
  const auto history = log::ReadHistory(folder / "rounds.log");
  EXPECT_TRUE(history.ok()) << history.status();
  return history.value_or(log::History());
}

// Works until the run is over; what comes after a round's deadline does not count.
void Work(FakeWorker& worker, Pace& pace) {
  uint32_t round = 1;
  while (true) {
    pace.AwaitRound(std::min(round, kRounds));
    const auto request = worker.Work();
    if (!request.has_value()) return;
    worker.Commit(*request);
    if (request->part.has_value()) round = request->part->round.value + 1;
  }
}

// Repeats the run with a worker that has all clients.
void Repeat(const log::History& history, const TemporaryFolder& folder) {
  Options options = NineClients(folder.path());
  options.replays = history.sessions().front().run;
  options.decisions = history.decisions();
  const auto coordinator = StartTiny(std::move(options));
  FakeWorker worker(*coordinator);
  worker.identity().clients = 9;
  worker.identity().table = fleet::Blob::Of(fleet::ClientTable{.rows = NineExamples()}.Encode());
  ASSERT_TRUE(worker.Register().ok());
  worker.RunToEnd();
  ASSERT_TRUE(coordinator->Wait().ok());
}

TEST(HostileDevice, TenThousandLiesCostTheRunItsClientAndNothingElse) {
  const TemporaryFolder disturbed, repeated;
  Options options = NineClients(disturbed.path());
  options.config.workers = 4;
  options.config.round = {.deadline = 0.5, .quorum = 0.5};
  const auto coordinator = StartTiny(std::move(options));
  const wire::SocketFolder socket;
  const auto server = *wire::FleetServer::Start(
      {.listen = socket.address(), .max_part_clients = 1008, .identify = Identify}, *coordinator);
  Pace pace;
  std::vector<std::unique_ptr<FakeWorker>> honest;
  for (int i = 0; i < 3; ++i) {
    const std::string name = absl::StrCat("worker-", i);
    honest.push_back(std::make_unique<FakeWorker>(
        *wire::Dial({.server = server->address(), .token = TokenOf(name)}), name));
    const auto registered = honest.back()->Register();
    ASSERT_TRUE(registered.ok()) << registered.status();
  }
  Liar device(server->address(), 42, pace, kDevice);
  fleet::RegisterRequest& identity = device.identity();
  identity.owner = true;
  identity.clients = 1;
  identity.central_test_rows = 0;
  identity.data_digest = DigestOf("the device's rows");
  identity.table =
      fleet::Blob::Of(fleet::ClientTable{.rows = {NineExamples().back()}, .names = {"8"}}.Encode());
  device.Join();
  std::vector<std::thread> threads;
  for (const auto& worker : honest) threads.emplace_back([&worker, &pace] { Work(*worker, pace); });
  device.LieUntilTheCallsAreSpent();
  pace.CountCalls(kCalls);  // releases the workers that wait
  for (std::thread& thread : threads) thread.join();
  const auto outcome = coordinator->Wait();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->rounds, kRounds);

  const log::History history = HistoryOf(disturbed);
  Repeat(history, repeated);
  EXPECT_EQ(log::FirstDifference(history, HistoryOf(repeated)), std::nullopt);
  EXPECT_EQ(RunBytes(disturbed.path()).model, RunBytes(repeated.path()).model);
  EXPECT_EQ(RunBytes(disturbed.path()).digest, RunBytes(repeated.path()).digest);
  uint64_t without = 0;
  for (const auto& [place, decision] : history.decisions()) {
    for (const log::GivenUp& one : decision.given_up)
      without += one.attempt.client == ClientId(8) ? 1 : 0;
  }
  EXPECT_GT(without, 0u) << "it held leases";
  for (const char* answer :
       {"Register PERMISSION_DENIED", "Register FAILED_PRECONDITION", "Lease OK", "Heartbeat OK",
        "Commit INVALID_ARGUMENT", "BeginUpload OK", "Download OK", "Release OK", "floods"}) {
    EXPECT_TRUE(device.answers().contains(answer)) << answer << " of " << device.AllAnswers();
  }
}

}  // namespace
}  // namespace macaw::server
