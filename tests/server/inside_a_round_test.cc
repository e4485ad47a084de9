// Runs that are interrupted inside a round, and servers that are stopped while rounds of an earlier
// one are done again: what is complete is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>

#include "algorithms/mean_delta.h"
#include "core/status.h"
#include "server/coordinator.h"
#include "tests/server/tiny_run.h"

namespace macaw::server {
namespace {

using fixtures::FakeWorker;
using fixtures::HistoryOf;
using fixtures::RunBytes;
using fixtures::Slurp;
using fixtures::TinyModel;
using fixtures::TinyOptions;
using testing_support::TemporaryFolder;

constexpr uint32_t kEnd = 5;

// Called before each phase is applied, on the thread that does it.
std::function<void(Round, Phase)>& BeforeApply() {
  static auto* const hook = new std::function<void(Round, Phase)>();
  return *hook;
}

// FedAvg that moves the model twice in a round, by what clients send in each of two phases.
class TwoSteps final : public algorithms::MeanDeltaServer {
 public:
  using MeanDeltaServer::MeanDeltaServer;
  absl::StatusOr<algorithms::AfterApply> Apply(const algorithms::ServerContext& context,
                                               aggregation::Aggregate aggregate) override {
    if (BeforeApply()) BeforeApply()(context.round, context.phase);
    MACAW_ASSIGN_OR_RETURN(const algorithms::AfterApply next,
                           MeanDeltaServer::Apply(context, std::move(aggregate)));
    return context.phase == Phase(0) ? algorithms::AfterApply::kNextPhase : next;
  }
};

const algorithms::Registry& RegistryOfTwoSteps() {
  static const auto* const registry = [] {
    algorithms::Description rule = **fixtures::Registry().Find("fedavg");
    rule.name = "two-steps";
    rule.schema = [](const algorithms::Setup& setup) -> absl::StatusOr<algorithms::Schema> {
      algorithms::Schema schema = algorithms::MeanDeltaSchema(setup);
      schema.metrics.push_back({.name = "second", .phases = {Phase(1)}});  // it tells of phase 1
      return schema;
    };
    rule.server = algorithms::MakeServer<TwoSteps>;
    auto* made = new algorithms::Registry();
    EXPECT_TRUE(made->Add(rule).ok());
    return made;
  }();
  return *registry;
}

class InsideARound : public testing::TestWithParam<const char*> {
 protected:
  ~InsideARound() override { BeforeApply() = nullptr; }

  Options OptionsIn(const TemporaryFolder& folder, uint32_t rounds = kEnd) const {
    Options options = TinyOptions(folder.path(), rounds);
    options.run.algorithm.name = "two-steps";
    options.config.durability = GetParam();
    options.config.checkpoint_every = 100;
    return options;
  }
  static std::unique_ptr<Coordinator> Start(Options options) {
    auto coordinator = Coordinator::Start(std::move(options), TinyModel(), RegistryOfTwoSteps());
    EXPECT_TRUE(coordinator.ok()) << coordinator.status();
    return coordinator.ok() ? *std::move(coordinator) : nullptr;
  }
  // By a worker that is another process where the run is resumed.
  static Outcome GoToTheEnd(Options options) {
    const bool resumes = options.resume;
    const auto coordinator = Start(std::move(options));
    FakeWorker worker(*coordinator);
    if (resumes) ++worker.identity().incarnation;
    EXPECT_TRUE(worker.Register().ok());
    worker.RunToEnd();
    const auto outcome = coordinator->Wait();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.value_or(Outcome{});
  }
  // The run was interrupted in round 3: it is what a run of two rounds is, and goes on from there.
  void ExpectTwoRoundsAndTheRest(const TemporaryFolder& folder) const {
    const TemporaryFolder two, whole;
    GoToTheEnd(OptionsIn(two, 2));
    GoToTheEnd(OptionsIn(whole));
    const std::string digest = RunBytes(two.path()).digest;
    EXPECT_EQ(RunBytes(folder.path()).digest, digest);
    EXPECT_EQ(Slurp(folder / "model.safetensors"), Slurp(two / "model.safetensors"));
    const auto ended = HistoryOf(folder).ended();
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->rounds, 2u);
    EXPECT_EQ(ended->model.Hex(), digest);
    Options options = OptionsIn(folder);
    options.resume = true;
    EXPECT_EQ(GoToTheEnd(options).rounds, kEnd);
    EXPECT_EQ(RunBytes(folder.path()), RunBytes(whole.path()));
  }
};

TEST_P(InsideARound, AnInterruptionInALaterPhaseKeepsTheRoundsBefore) {
  const TemporaryFolder folder;
  {
    const auto coordinator = Start(OptionsIn(folder));
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(3);  // its first phase
    const auto request = worker.WorkOnPart();
    ASSERT_TRUE(request.has_value());
    ASSERT_EQ(request->part->phase, Phase(1));
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    const auto outcome = coordinator->Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->kind, Outcome::Kind::kInterrupted);
    EXPECT_EQ(outcome->rounds, 2u);
  }
  ExpectTwoRoundsAndTheRest(folder);
}

TEST_P(InsideARound, AnInterruptionWhileAPhaseIsAppliedKeepsTheRoundsBefore) {
  const TemporaryFolder folder;
  {
    std::promise<Coordinator*> started;
    BeforeApply() = [&, server = started.get_future().share()](Round round, Phase phase) {
      if (round == Round(3) && phase == Phase(0)) server.get()->Interrupt();
    };
    const auto coordinator = Start(OptionsIn(folder));
    started.set_value(coordinator.get());
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunToEnd();
    const auto outcome = coordinator->Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->rounds, 2u);
    BeforeApply() = nullptr;
  }
  ExpectTwoRoundsAndTheRest(folder);
}

TEST_P(InsideARound, AnInterruptionInTheFirstPhaseKeepsTheRoundsBefore) {
  const TemporaryFolder folder;
  {
    const auto coordinator = Start(OptionsIn(folder));
    FakeWorker worker(*coordinator);
    ASSERT_TRUE(worker.Register().ok());
    std::optional<fleet::CommitRequest> request;
    while ((request = worker.WorkOnPart()) && request->part->round < Round(3))
      ASSERT_EQ(worker.Commit(*request).verdict, fleet::Verdict::kAccepted);
    ASSERT_EQ(request->part->phase, Phase(0));
    request->part.reset();
    worker.Commit(*request);  // the evaluation of round 2
    coordinator->Interrupt();
    EXPECT_FALSE(worker.Work().has_value());
    ASSERT_TRUE(coordinator->Wait().ok());
  }
  ExpectTwoRoundsAndTheRest(folder);
}

INSTANTIATE_TEST_SUITE_P(Durability, InsideARound, testing::Values("checkpoint", "commit"));

using InsideADurableRound = InsideARound;

// To end the run would drop the closed rounds that are not done again yet.
TEST_P(InsideADurableRound, AnInterruptionWhileRoundsAreDoneAgainDropsNone) {
  const TemporaryFolder folder, whole;
  GoToTheEnd(OptionsIn(whole));
  {
    const auto first = Start(OptionsIn(folder));
    FakeWorker worker(*first);
    ASSERT_TRUE(worker.Register().ok());
    worker.RunThrough(4);
    first->Suspend();
    ASSERT_TRUE(first->Wait().ok());
  }
  ASSERT_EQ(HistoryOf(folder).completed(), Round(3));
  Options options = OptionsIn(folder);
  options.resume = true;
  {
    std::promise<Coordinator*> started;
    BeforeApply() = [&, server = started.get_future().share()](Round round, Phase) {
      if (round == Round(2)) server.get()->Interrupt();
    };
    const auto second = Start(options);
    started.set_value(second.get());
    const auto outcome = second->Wait();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->kind, Outcome::Kind::kSuspended);
    BeforeApply() = nullptr;
  }
  EXPECT_FALSE(HistoryOf(folder).ended().has_value());
  EXPECT_EQ(HistoryOf(folder).completed(), Round(3));
  EXPECT_EQ(GoToTheEnd(options).rounds, kEnd);
  const log::RunOpened third = HistoryOf(folder).sessions().back();
  EXPECT_TRUE(third.goes_on);
  EXPECT_EQ(third.completed, Round(3));
  EXPECT_EQ(RunBytes(folder.path()), RunBytes(whole.path()));
}

INSTANTIATE_TEST_SUITE_P(Durable, InsideADurableRound, testing::Values("commit"));

}  // namespace
}  // namespace macaw::server
