#include "tests/server/liar.h"

// A worker that sends false values in every field, beside three honest workers, over a real socket.
// It has joined the run and holds real leases. It does not know the sessions of other workers. The
// test omits lies that no server can detect: a false loss within the bounds (NaN is the loss of a
// model that has diverged), a false update within the bounds, its own clients that it leaves out or
// lets die, and (until callers have names of their own) another worker's name. It also omits sums
// under a wrong digest, which a private socket does not check (tests/proto/remote_blob_test.cc).
namespace macaw::server {
namespace {

class HostileWorker : public testing::TestWithParam<Rounds> {};

INSTANTIATE_TEST_SUITE_P(, HostileWorker, testing::Values(Rounds::kWait, Rounds::kDoNotWait),
                         NameOf);

TEST_P(HostileWorker, TenThousandLiesNeitherEndNorChangeTheRun) {
  const TemporaryFolder undisturbed, disturbed;
  const bool waits = GetParam() == Rounds::kWait;
  Options options = HostileOptions(disturbed.path(), GetParam());
  options.config.workers = 3;
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
    ASSERT_TRUE(honest.back()->Register().ok());
  }
  const uint64_t before = *ProportionalSetSize();
  Liar liar(server->address(), 41, pace);
  liar.Join();
  liar.BringSomeSums();
  std::vector<std::thread> threads;
  for (const auto& worker : honest)
    threads.emplace_back([&worker, &pace] { WorkHonestly(*worker, pace); });
  liar.LieUntilTheCallsAreSpent();
  pace.CountCalls(kCalls);  // releases the workers that wait
  for (std::thread& thread : threads) thread.join();
  const auto outcome = coordinator->Wait();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->rounds, kRounds);
  if (waits) {
    Finish(HostileOptions(undisturbed.path(), GetParam()));
    EXPECT_EQ(RunBytes(disturbed.path()), RunBytes(undisturbed.path()));
  } else {  // the order of arrivals is the world's decision, and lies have had a part in it
    ExpectTheSameRepeated(disturbed, HostileOptions(undisturbed.path(), GetParam()),
                          fixtures::TinyExamples());
    EXPECT_GT(liar.told(), 0);
  }
  EXPECT_LT(liar.peak() - before, kMemoryBound);
  // The lies reached the engine, and there were floods among them.
  for (const char* answer : {"Register FAILED_PRECONDITION", "Lease OK", "Heartbeat OK",
                             "Commit OK", "Commit INVALID_ARGUMENT", "BeginUpload OK", "Upload OK",
                             "Download OK", "Release OK", "floods"}) {
    EXPECT_TRUE(liar.answers().contains(answer)) << answer << " of " << liar.AllAnswers();
  }
}

}  // namespace
}  // namespace macaw::server
