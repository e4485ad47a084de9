#include "tests/server/liar.h"

// A device that sends false values in every field, beside honest workers, over a real socket. Its
// client is its own to leave out, and the rounds do without it. Nothing else that it says changes a
// bit: a simulation that does without the same clients ends with the same model.
namespace macaw::server {
namespace {

// The tiny run with a ninth client, which has one row more than the eighth.
std::vector<uint32_t> NineExamples() {
  std::vector<uint32_t> examples = fixtures::TinyExamples();
  examples.push_back(examples.back() + 1);
  return examples;
}

Options NineClients(const std::string& run_dir, Rounds rounds) {
  Options options = HostileOptions(run_dir, rounds);
  options.run.clients = options.run.train_examples = 0;  // as many as the nodes bring
  return options;
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

class HostileDevice : public testing::TestWithParam<Rounds> {};

INSTANTIATE_TEST_SUITE_P(, HostileDevice, testing::Values(Rounds::kWait, Rounds::kDoNotWait),
                         NameOf);

TEST_P(HostileDevice, TenThousandLiesCostTheRunItsClientAndNothingElse) {
  const TemporaryFolder disturbed, repeated;
  Options options = NineClients(disturbed.path(), GetParam());
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

  ExpectTheSameRepeated(disturbed, NineClients(repeated.path(), GetParam()), NineExamples());
  if (GetParam() == Rounds::kWait) {
    uint64_t without = 0;
    for (const auto& [place, decision] : HistoryOf(disturbed).decisions()) {
      for (const log::GivenUp& one : decision.given_up)
        without += one.attempt.client == ClientId(8) ? 1 : 0;
    }
    EXPECT_GT(without, 0u) << "it held leases";
  } else {  // nobody waits for it
    EXPECT_GT(device.told(), 0) << "it held leases";
  }
  for (const char* answer :
       {"Register PERMISSION_DENIED", "Register FAILED_PRECONDITION", "Lease OK", "Heartbeat OK",
        "Commit INVALID_ARGUMENT", "BeginUpload OK", "Download OK", "Release OK", "floods"}) {
    EXPECT_TRUE(device.answers().contains(answer)) << answer << " of " << device.AllAnswers();
  }
}

}  // namespace
}  // namespace macaw::server
