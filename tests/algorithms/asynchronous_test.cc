#include "algorithms/around/asynchronous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/around/registry.h"
#include "algorithms/builtin.h"
#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

// Half the squared distance to a point: a step moves a client by lr times the rest of its way.
class Pull final : public Objective {
 public:
  explicit Pull(double target) : target_(target) {}
  double Loss(const Numbers& x) const override { return (x[0] - target_) * (x[0] - target_) / 2; }
  Numbers Gradient(const Numbers& x) const override { return {x[0] - target_}; }

 private:
  const double target_;
};

RunPlan Buffered(uint64_t size = 2) {
  RunPlan run;
  run.clients = 10;
  run.cohort.size = size;
  run.devices.family = "phones";
  run.asynchronous.mode = "buffered";
  return run;
}

RunPlan Mixed(double mixing) {
  RunPlan run = Buffered(1);
  run.asynchronous.mode = "mixed";
  run.asynchronous.mixing = mixing;
  return run;
}

// Clients that are pulled to these points, with 1, 2, … examples, from 0.
RoundLoop Pulled(const Description& rule, const std::vector<double>& targets, uint64_t size) {
  std::vector<TestPopulationClient> population;
  for (const double target : targets) {
    population.push_back(
        {std::make_shared<Pull>(target), static_cast<uint32_t>(population.size() + 1)});
  }
  return {rule,
          population,
          {.steps = 1, .start = {0}, .lr = 0.5, .cohort = {.size = size}, .asynchronous = true}};
}

// Of the loop itself: it keeps the models that older turns begin from, also when it goes on.
TEST(AsynchronousLoop, GoesOnFromAnothersOlderModels) {
  const Description rule = Asynchronous(Builtin("fedavg"), Buffered());
  RoundLoop whole = Pulled(rule, {2, 8}, 2), begun = Pulled(rule, {2, 8}, 2);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(whole.Round({0, 1}).ok());
    ASSERT_TRUE(begun.Round({0, 1}).ok());
  }
  RoundLoop resumed = Pulled(rule, {2, 8}, 2);
  ASSERT_TRUE(resumed.ResumeFrom(begun).ok());
  ASSERT_TRUE(whole.Round({0, 1}, {}, {{0, 3}, {1, 2}}).ok());
  ASSERT_TRUE(resumed.Round({0, 1}, {}, {{0, 3}, {1, 2}}).ok());
  EXPECT_EQ(resumed.ModelDigest(), whole.ModelDigest());
}

TEST(AsynchronousLoop, RefusesRoundsThatThereWereNot) {
  RoundLoop loop = Pulled(Asynchronous(Builtin("fedavg"), Buffered()), {2, 8}, 2);
  EXPECT_THAT(std::string(loop.Round({0, 1}, {}, {{1, 1}}).message()),
              HasSubstr("client 1 began 1 rounds before, and there were 0"));
  ASSERT_TRUE(loop.Round({0, 1}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(loop.Round({0, 1}, {}, {{0, 2}})));
  EXPECT_TRUE(loop.Round({0, 1}, {}, {{0, 1}}).ok()) << "a refused round is none";
  RoundLoop synchronous(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(synchronous.Rounds(2).ok());
  EXPECT_THAT(std::string(synchronous.Round({0, 1}, {}, {{0, 1}}).message()),
              HasSubstr("Options::asynchronous"));
  RoundLoop other = Pulled(Asynchronous(Builtin("fedavg"), Buffered()), {2, 8}, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(other.ResumeFrom(synchronous)));
}

// s(τ) = 1/√(1 + τ), as algorithm 1 of the paper, and not 1/(1 + √τ).
TEST(Discount, IsThatOfThePaper) {
  const AsynchronousConfig paper;
  EXPECT_EQ(DiscountOf(paper, 0), 1);
  EXPECT_EQ(DiscountOf(paper, 3), 0.5);
  EXPECT_DOUBLE_EQ(DiscountOf(paper, 1), 1 / std::sqrt(2));
  EXPECT_DOUBLE_EQ(DiscountOf({.discount = 1}, 3), 0.25);
  EXPECT_DOUBLE_EQ(DiscountOf({.discount = 2}, 3), 1.0 / 16);
  EXPECT_EQ(DiscountOf({.discount = 0}, 7), 1);
}

// By hand. Clients 0 and 1 are pulled to 2 and 8, with weights 1 and 2; a step is half the way.
//   round 1, both from x₀ = 0:          (1·1 + 2·4)/3             x₁ = 3
//   round 2, both from x₁ = 3:          (1·(−½) + 2·2.5)/3        x₂ = 4.5
//   round 3, client 1 from x₀: Δ = 4, s(2) = 1/√3; client 0 from x₂: Δ = −1.25
//                                       (−1.25 + 2·4/√3)/3
// The mean is by the weights, which the discount does not change.
TEST(Buffered, CountsOlderUpdatesLessAsOnPaper) {
  RoundLoop loop = Pulled(Asynchronous(Builtin("fedavg"), Buffered()), {2, 8}, 2);
  ASSERT_TRUE(loop.Round({0, 1}).ok());
  EXPECT_NEAR(loop.Model()[0], 3, 1e-12);
  ASSERT_TRUE(loop.Round({0, 1}).ok());
  EXPECT_NEAR(loop.Model()[0], 4.5, 1e-12);
  ASSERT_TRUE(loop.Round({0, 1}, {}, {{1, 2}}).ok());
  EXPECT_NEAR(loop.Model()[0], 4.5 + (-1.25 + 2 * 4 / std::sqrt(3)) / 3, 1e-12);
}

// Rules whose server moves the model by updates of older ones, too. RefusesEveryOtherRule holds the
// list to the registry.
const std::vector<std::string> kArriving = {"fedavg",  "fedprox", "fedsam",    "fedavgm",
                                            "fedadam", "fedyogi", "fedadagrad"};

TEST(Buffered, WithoutDelayIsTheRuleItself) {
  for (const std::string& name : kArriving) {
    RoundLoop plain = Pulled(Builtin(name), {2, 8, -3}, 3);
    RoundLoop buffered = Pulled(Asynchronous(Builtin(name), Buffered(3)), {2, 8, -3}, 3);
    ASSERT_TRUE(plain.Rounds(5).ok());
    ASSERT_TRUE(buffered.Rounds(5).ok());
    EXPECT_EQ(buffered.ModelDigest(), plain.ModelDigest()) << name;
  }
}

// x ← x + α·s(τ)·(x_b + Δ − x), by hand with α = 0.8, clients pulled to 2 and 8:
//   client 0 from x₀ = 0, τ = 0: its model is 1                   x₁ = 0.8
//   client 1 from x₀ = 0, τ = 1: its model is 4                   x₂ = 0.8 + 0.8/√2·(4 − 0.8)
TEST(Mixed, MovesTowardsTheClientsModel) {
  RoundLoop loop = Pulled(Asynchronous(Builtin("fedavg"), Mixed(0.8)), {2, 8}, 1);
  ASSERT_TRUE(loop.Round({0}).ok());
  EXPECT_NEAR(loop.Model()[0], 0.8, 1e-12);
  ASSERT_TRUE(loop.Round({1}, {}, {{1, 1}}).ok());
  EXPECT_NEAR(loop.Model()[0], 0.8 + 0.8 / std::sqrt(2) * (4 - 0.8), 1e-12);
}

TEST(Mixed, AsAWholeAndWithoutDelayIsTheRuleItself) {
  for (const std::string& name : kArriving) {
    RoundLoop plain = Pulled(Builtin(name), {2, 8, -3}, 1);
    RoundLoop mixed = Pulled(Asynchronous(Builtin(name), Mixed(1)), {2, 8, -3}, 1);
    for (const size_t client : {0, 2, 1, 1, 0}) {
      ASSERT_TRUE(plain.Round({client}).ok());
      ASSERT_TRUE(mixed.Round({client}).ok());
    }
    EXPECT_EQ(mixed.ModelDigest(), plain.ModelDigest()) << name;
  }
}

TEST(Mixed, ALostClientMovesNothing) {
  RoundLoop loop = Pulled(Asynchronous(Builtin("fedavg"), Mixed(0.8)), {2, 8}, 1);
  ASSERT_TRUE(loop.Round({0}).ok());
  ASSERT_TRUE(loop.Round({1}, {1}, {{1, 1}}).ok());
  EXPECT_NEAR(loop.Model()[0], 0.8, 1e-12);
}

std::string Refusal(const RunPlan& run) { return std::string(CheckAsynchronous(run).message()); }

TEST(CheckAsynchronous, RefusesWhatArrivalsCannotBe) {
  EXPECT_TRUE(CheckAsynchronous(RunPlan()).ok());
  EXPECT_TRUE(CheckAsynchronous(Buffered()).ok());
  EXPECT_TRUE(CheckAsynchronous(Mixed(0.5)).ok());
  const auto with = [](auto change) {
    RunPlan run = Buffered();
    change(run);
    return Refusal(run);
  };
  EXPECT_EQ(with([](RunPlan& r) { r.devices.family = "none"; }), "") << "a fleet has real ones";
  EXPECT_THAT(with([](RunPlan& r) { r.cohort.sampling = "poisson"; }), HasSubstr("poisson"));
  EXPECT_THAT(with([](RunPlan& r) { r.cohort.over_selection = 1.5; }),
              HasSubstr("cohort.over_selection"));
  EXPECT_THAT(with([](RunPlan& r) {
                r.cohort.straggler_fraction = 0.5;
                r.cohort.straggler_policy = "drop";
              }),
              HasSubstr("straggler_policy"));
  EXPECT_THAT(with([](RunPlan& r) { r.devices.deadline = 3; }), HasSubstr("round.deadline"));
  EXPECT_THAT(with([](RunPlan& r) { r.asynchronous.mode = "mixed"; }),
              HasSubstr("cohort.size = 1"));
  EXPECT_THAT(with([](RunPlan& r) { r.asynchronous.concurrency = 1; }),
              HasSubstr("round.concurrency = 1"));
  EXPECT_THAT(with([](RunPlan& r) { r.asynchronous.refill = 3; }), HasSubstr("round.refill = 3"));
  EXPECT_THAT(with([](RunPlan& r) { r.asynchronous.concurrency = 11; }),
              HasSubstr("10 can be drawn"));
  EXPECT_THAT(with([](RunPlan& r) { r.privacy.mechanism = "gaussian"; }), HasSubstr("[privacy]"));
  EXPECT_THAT(with([](RunPlan& r) { r.update.codec = {"acpsgd 2"}; }), HasSubstr("acpsgd"));
  EXPECT_THAT(with([](RunPlan& r) { r.update.codec = {"majority 0.01"}; }), HasSubstr("majority"));
}

TEST(Asynchronous, RefusesEveryOtherRuleWithTheReason) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  const std::vector<std::string> stateful = {"scaffold", "feddyn", "fedbn", "ditto", "fedrep",
                                             "fedper",   "pfedme", "apfl",  "moon",  "local"};
  size_t accepted = 0, kept = 0;
  for (const Description* known : registry.All()) {
    // Sums over rows need a model of layers: tests/system/surroundings.cc.
    if (known->has_statistics) continue;
    SCOPED_TRACE(known->name);
    RunPlan run = Buffered();
    run.algorithm = *registry.Complete({.name = known->name});
    const Description rule = *registry.RuleOf(run);
    algorithms::Setup setup = SetupOf(run, Plain(1, DType::kF64));
    setup.total_weight = 10;
    const auto refusal = std::string(MakeSchema(rule, setup).status().message());
    if (std::ranges::count(kArriving, known->name) > 0) {
      EXPECT_EQ(refusal, "");
      ++accepted;
    } else if (std::ranges::count(stateful, known->name) > 0) {
      EXPECT_THAT(refusal, HasSubstr("round.mode: what the rule's clients keep"));
      ++kept;
    } else {
      EXPECT_THAT(refusal, HasSubstr("round.mode: the rule is not made for"));
    }
  }
  EXPECT_EQ(accepted, kArriving.size());
  EXPECT_EQ(kept, stateful.size());
}

}  // namespace
}  // namespace macaw::algorithms
