#include "algorithms/around/privacy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/around/accountant.h"
#include "sdk/testing/round_loop.h"
#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/privacy_util.h"

namespace macaw::algorithms {
namespace {

using fixtures::BatchNormNet;
using fixtures::Gaussian;
using fixtures::kRounds;
using fixtures::Poisson;
using testing::HasSubstr;

// The gradient is `slope` everywhere, so a client's update is −steps·lr·slope.
class Slope final : public Objective {
 public:
  explicit Slope(Numbers slope) : slope_(std::move(slope)) {}
  double Loss(const Numbers&) const override { return 0; }
  Numbers Gradient(const Numbers&) const override { return slope_; }

 private:
  const Numbers slope_;
};

// Clients with the slopes k·(3, 4), whose updates have the norms k/2, in `numbers` coordinates of
// which two are theirs.
RoundLoop LoopOf(const Description& rule, uint64_t cohort, size_t clients, size_t numbers = 2,
                 uint64_t seed = 1) {
  std::vector<TestPopulationClient> population;
  for (size_t k = 0; k < clients; ++k) {
    Numbers slope(numbers);
    slope[0] = 3.0 * static_cast<double>(k);
    slope[1] = 4.0 * static_cast<double>(k);
    population.push_back({std::make_shared<Slope>(slope), 1});
  }
  return {rule,
          population,
          {.steps = 1, .start = Numbers(numbers), .cohort = Poisson(cohort), .seed = seed}};
}

RoundLoop Loop(const PrivacyConfig& privacy, uint64_t cohort, size_t clients = 10,
               size_t numbers = 2, uint64_t seed = 1, const std::string& rule = "fedavg") {
  return LoopOf(WithPrivacy(Builtin(rule), privacy, kRounds), cohort, clients, numbers, seed);
}

constexpr double kTiny = 1e-9;  // noise that does not count

TEST(Privacy, ClipsWhatAClientSendsToItsNorm) {
  RoundLoop loop = Loop(Gaussian(2, kTiny), 4);
  // Norms 0.5, 1 and 4: the last one is halved. The sum is divided by the planned 4.
  ASSERT_TRUE(loop.Round({1, 2, 8}).ok());
  EXPECT_NEAR(loop.Model()[0], -0.1 * (3 + 6 + 12) / 4, 1e-5);
  EXPECT_NEAR(loop.Model()[1], -0.1 * (4 + 8 + 16) / 4, 1e-5);
  EXPECT_NEAR(loop.metrics().at("clipped"), 1.0 / 3, 1e-12);
  EXPECT_EQ(loop.metrics().at("clip"), 2);
}

// What is clipped is what a client keeps, and what is lost it does not keep.
TEST(Privacy, ScaffoldsControlStaysTheMeanOfItsClientsWhoeverIsClippedOrLost) {
  constexpr size_t kClients = 10;
  RoundLoop loop = Loop(Gaussian(2, kTiny), 4, kClients, 2, 1, "scaffold");
  const std::pair<std::vector<size_t>, std::set<size_t>> rounds[] = {
      {{1, 2, 8}, {}}, {{3, 7, 9}, {7}}, {{7, 8, 9}, {8, 9}}, {{5, 6}, {5, 6}}, {{2, 7, 8}, {2}}};
  bool clipped = false;
  for (const auto& [cohort, lost] : rounds) {
    ASSERT_TRUE(loop.Round(cohort, lost).ok());
    Numbers mean(2);
    for (size_t client = 0; client < kClients; ++client) {
      for (size_t i = 0; i < 2; ++i) mean[i] += loop.State(client, 0)[i] / kClients;
    }
    EXPECT_LT(Distance(loop.Saved("control"), mean), 1e-6);
    const auto counted = loop.metrics().find("clipped");
    clipped = clipped || (!lost.empty() && counted != loop.metrics().end() && counted->second > 0);
  }
  EXPECT_TRUE(clipped) << "in a round with lost clients";
  EXPECT_EQ(loop.State(5, 0), Numbers(2)) << "its only turn was lost";
  EXPECT_NE(loop.State(9, 0), Numbers(2));
}

// An attacker turns what would be sent, clipped, and keeps what the rule concludes of its work.
TEST(Privacy, OfScaffoldUnderAnAttackIsTheClippedSumWithTheHostilePartTurned) {
  const AttackConfig attack = Of("sign-flip", 0.5);
  const HostileClients hostile(attack, 4, kSeed);
  const Description honest_rule =
      WithPrivacy(Builtin("scaffold"), Gaussian(2, kTiny), kRounds, attack);
  RoundLoop attacked = LoopOf(Attacked(honest_rule, attack, hostile), 4, 4);
  RoundLoop honest = LoopOf(honest_rule, 4, 4);
  ASSERT_TRUE(attacked.Rounds(1).ok() && honest.Rounds(1).ok());
  EXPECT_EQ(attacked.metrics().at("attackers"), 2);
  EXPECT_GT(attacked.metrics().at("clipped"), 0);
  Numbers model(2), control(2);
  for (size_t client = 0; client < 4; ++client) {
    RoundLoop alone = LoopOf(honest_rule, 4, 4);
    ASSERT_TRUE(alone.Round({client}).ok());
    const double sign = hostile.Contains(ClientId(client)) ? -1 : 1;
    for (size_t i = 0; i < 2; ++i) {
      model[i] += sign * alone.Model()[i];
      control[i] += sign * alone.Saved("control")[i];
    }
    EXPECT_EQ(attacked.State(client, 0), honest.State(client, 0));
  }
  EXPECT_LT(Distance(attacked.Model(), model), 1e-6);
  EXPECT_LT(Distance(attacked.Saved("control"), control), 1e-6);
  EXPECT_GT(Distance(attacked.Model(), honest.Model()), 1e-2);
}

TEST(Privacy, NoContributionIsLongerThanTheClip) {
  for (const size_t client : {4u, 5u, 9u}) {
    RoundLoop loop = Loop(Gaussian(1.5, kTiny), 1);
    ASSERT_TRUE(loop.Round({client}).ok());
    EXPECT_LE(std::hypot(loop.Model()[0], loop.Model()[1]), 1.5);
    EXPECT_GT(std::hypot(loop.Model()[0], loop.Model()[1]), 1.4999);
  }
}

TEST(Privacy, NoiseHasItsDeviationHoweverManyClientsCame) {
  for (const std::vector<size_t>& came : {std::vector<size_t>{0}, {}, {0, 0, 0}}) {
    RoundLoop loop = Loop(Gaussian(0.5, 3), 4, 10, 40000);
    ASSERT_TRUE(loop.Round(came).ok());
    double square = 0, beyond = 0;
    const double expected = 3 * 0.5 / 4;  // z·C/(q·N)
    for (const double x : loop.Model()) {
      square += x * x;
      beyond += std::fabs(x) > 2 * expected ? 1 : 0;
    }
    EXPECT_NEAR(std::sqrt(square / 40000), expected, 0.02 * expected);
    EXPECT_NEAR(beyond / 40000, 0.0455, 0.006) << "of a normal distribution, beyond 2σ";
  }
}

// A rule that sends them, too, whatever its description says: in a step they move by a tenth.
TEST(Privacy, SendsNothingOfBuffersAndAddsNoNoiseToThem) {
  const uint64_t statistic = BatchNormNet()->Find("bn.running_mean")->offset;
  const auto statistic_of = [&](const Description& rule, const std::vector<size_t>& cohort) {
    std::vector<TestPopulationClient> population;
    for (size_t k = 0; k < 10; ++k)
      population.push_back({std::make_shared<Slope>(Numbers{3.0 * k, 4.0 * k}), 1});
    RoundLoop loop(rule, population,
                   {.steps = 1, .layout = BatchNormNet(), .cohort = Poisson(4), .seed = 1});
    EXPECT_TRUE(loop.Round(cohort).ok());
    EXPECT_NE(loop.Model()[0], 0);
    return loop.server().Model().As<double>()[statistic];
  };
  const Description fedavg = Builtin("fedavg");
  EXPECT_NE(statistic_of(fedavg, {1, 2, 8}), 0);
  for (const char* rule : {"fedavg", "scaffold", "fedbn"}) {
    const Description noised = WithPrivacy(Builtin(rule), Gaussian(2, 1), kRounds);
    EXPECT_EQ(statistic_of(noised, {1, 2}), 0) << rule << ", below the clip";
    EXPECT_EQ(statistic_of(noised, {8, 9}), 0) << rule << ", clipped";
  }
}

TEST(Privacy, OfFedBnLeavesTheStatisticsWithTheClients) {
  const auto own = [](const Description& rule) {
    std::vector<TestPopulationClient> population;
    for (size_t k = 0; k < 10; ++k)
      population.push_back({std::make_shared<Slope>(Numbers{3, 4}), 1});
    RoundLoop loop(rule, population,
                   {.steps = 1, .layout = BatchNormNet(), .cohort = Poisson(4), .seed = 1});
    EXPECT_TRUE(loop.Round({1, 2}).ok());
    const ConstVectorView kept = loop.StateOf(1, 0);
    return kept.As<double>()[kept.layout->Find("bn.running_mean")->offset];
  };
  EXPECT_NE(own(Builtin("fedbn")), 0);
  EXPECT_EQ(own(WithPrivacy(Builtin("fedbn"), Gaussian(2, 1), kRounds)), own(Builtin("fedbn")));
}

TEST(Privacy, NoiseIsAnotherInEachRoundAndRunAndTheSameInARepeatedOne) {
  RoundLoop one = Loop(Gaussian(1, 1), 4), same = Loop(Gaussian(1, 1), 4),
            other = Loop(Gaussian(1, 1), 4, 10, 2, /*seed=*/2);
  for (RoundLoop* loop : {&one, &same, &other}) ASSERT_TRUE(loop->Round({}).ok());
  EXPECT_EQ(one.ModelDigest(), same.ModelDigest());
  EXPECT_NE(one.ModelDigest(), other.ModelDigest());
  const Numbers first = one.Model();
  ASSERT_TRUE(one.Round({}).ok());
  EXPECT_GT(std::fabs(one.Model()[0] - 2 * first[0]), 1e-6);
}

TEST(Privacy, NoiseOfALargerCohortIsSmallerBesideTheSum) {
  PrivacyConfig larger = Gaussian(1, 2);
  larger.noise_cohort = 40;
  RoundLoop plain = Loop(Gaussian(1, 2), 10, 100), scaled = Loop(larger, 10, 100);
  ASSERT_TRUE(plain.Round({}).ok() && scaled.Round({}).ok());
  EXPECT_NEAR(scaled.Model()[0], plain.Model()[0] / 4, 1e-12);
  EXPECT_NEAR(plain.metrics().at("epsilon"), Accountant(0.1, 2).RenyiEpsilon(1, 1e-6), 1e-12);
  EXPECT_NEAR(scaled.metrics().at("epsilon"), Accountant(0.4, 2).RenyiEpsilon(1, 1e-6), 1e-12);
}

// A benchmark trains a thousand clients and stands for a million, of whom a thousand are drawn.
TEST(Privacy, EpsilonIsOfThePopulationThatTheRunStandsFor) {
  EXPECT_NEAR(Accountant(1, 0.865).Epsilon(40, 1e-6), 60.8, 0.1);
  EXPECT_NEAR(Accountant(1e-3, 0.865).Epsilon(40, 1e-6), 0.13, 0.005);
  PrivacyConfig privacy = Gaussian(1, 0.865);
  privacy.noise_cohort = 1000;
  RoundLoop those = Loop(privacy, 10, 1000);
  privacy.population = 1000000;
  RoundLoop million = Loop(privacy, 10, 1000);
  ASSERT_TRUE(those.Round({}).ok() && million.Round({}).ok());
  EXPECT_EQ(those.ModelDigest(), million.ModelDigest());  // the noise is the same
  EXPECT_NEAR(those.metrics().at("epsilon"), Accountant(1, 0.865).RenyiEpsilon(1, 1e-6), 1e-12);
  EXPECT_NEAR(million.metrics().at("epsilon"), Accountant(1e-3, 0.865).RenyiEpsilon(1, 1e-6),
              1e-12);
}

TEST(Privacy, EpsilonCountsRounds) {
  RoundLoop loop = Loop(Gaussian(1, 1), 1, 100);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(loop.Round({}).ok());
    EXPECT_NEAR(loop.metrics().at("epsilon"), Accountant(0.01, 1).RenyiEpsilon(round, 1e-6), 1e-12);
  }
}

// Of its float precision nothing is left, and its tail is that of 64 bits.
TEST(Privacy, NoiseIsDrawnInDoublePrecision) {
  RoundLoop loop = Loop(Gaussian(1, 1), 1, 10, 1000);
  ASSERT_TRUE(loop.Round({}).ok());
  int floats = 0;
  for (const double x : loop.Model()) floats += static_cast<float>(x) == x ? 1 : 0;
  EXPECT_LT(floats, 10);
}

// Stragglers that are dropped are no zeros of the mean, and make ε smaller.
TEST(Privacy, TheCohortIsPlannedWithoutTheStragglersThatAreDropped) {
  std::vector<TestPopulationClient> population;
  for (size_t k = 0; k < 10; ++k) population.push_back({std::make_shared<Slope>(Numbers{3, 4}), 1});
  CohortConfig cohort = Poisson(4);
  cohort.straggler_fraction = 0.25;
  cohort.straggler_policy = "drop";
  RoundLoop loop(WithPrivacy(Builtin("fedavg"), Gaussian(2, kTiny), kRounds), population,
                 {.steps = 1, .start = Numbers(2), .cohort = cohort, .seed = 1});
  ASSERT_TRUE(loop.Round({1, 2, 8}).ok());  // the three of four that did not straggle
  EXPECT_NEAR(loop.Model()[0], -0.3, 1e-5);
  EXPECT_NEAR(loop.metrics().at("epsilon"), Accountant(0.3, kTiny).RenyiEpsilon(1, 1e-6), 1e-9);
  cohort.straggler_policy = "partial";
  RoundLoop partial(WithPrivacy(Builtin("fedavg"), Gaussian(2, kTiny), kRounds), population,
                    {.steps = 1, .start = Numbers(2), .cohort = cohort, .seed = 1});
  ASSERT_TRUE(partial.Round({1, 2, 8}).ok());
  EXPECT_NEAR(partial.Model()[0], -0.3 * 3 / 4, 1e-5);
}

// The clip is a part of an honest client's program.
TEST(Privacy, BoundsLetHostileUpdatesThrough) {
  const auto bound = [](const AttackConfig& attack) {
    algorithms::Setup setup;
    setup.layout = ParameterLayout::Scalars("w", 2, DType::kF32);
    setup.cohort = Poisson(4);
    setup.clients = 10;
    setup.config.parameters = {{"server_lr", 1.0}};
    return WithPrivacy(Builtin("fedavg"), Gaussian(0.5, 1), kRounds, attack)
        .schema(setup)
        ->up[0]
        .bound;
  };
  EXPECT_EQ(bound({}), 0.5);
  EXPECT_EQ(bound({.kind = "scaling", .fraction = 0.2, .scale = 100}), 50);
  EXPECT_EQ(bound({.kind = "scaling", .fraction = 0.2}), 5);
  EXPECT_EQ(bound({.kind = "scaling", .fraction = 0.2, .scale = 1e9}), 65536) << "the run's own";
  EXPECT_EQ(bound({.kind = "sign-flip", .fraction = 0.2}), 0.5);
  EXPECT_EQ(bound({.kind = "free-rider", .fraction = 0.2, .noise = 3}), 21);
}

// Andrew et al. 2021, algorithm 1, by hand.
TEST(AdaptiveClipping, MovesTheClipByThePartThatIsShorter) {
  PrivacyConfig privacy = Gaussian(2, kTiny);
  privacy.clip_quantile = 0.5;
  privacy.count_noise = 1e-6;
  RoundLoop loop = Loop(privacy, 4);
  ASSERT_TRUE(loop.Round({1, 2, 8}).ok());  // of 4 planned clients: ½ + ½(1 + 1 − 1)/4
  EXPECT_EQ(loop.metrics().at("clip"), 2);
  EXPECT_NEAR(loop.metrics().at("clipped"), 0.375, 1e-5);
  const double next = 2 * std::exp(-0.2 * (0.625 - 0.5));
  EXPECT_NEAR(loop.Model()[0], -0.1 * (3 + 6 + 12) / 4, 1e-5);
  ASSERT_TRUE(loop.Round({8}).ok());
  EXPECT_NEAR(loop.metrics().at("clip"), next, 1e-5);
  EXPECT_NEAR(loop.Model()[0], -0.1 * (3 + 6 + 12) / 4 - 0.6 * next / 4, 1e-5);
}

TEST(AdaptiveClipping, FindsTheQuantile) {
  PrivacyConfig privacy = Gaussian(0.01, 0.1);
  privacy.clip_quantile = 0.7;
  RoundLoop loop = Loop(privacy, 10);
  for (int round = 0; round < 80; ++round)
    ASSERT_TRUE(loop.Round({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}).ok());
  // Seven of the ten norms 0, 0.5, …, 4.5 are at most 3 and below 3.5.
  EXPECT_GT(loop.metrics().at("clip"), 2.8);
  EXPECT_LT(loop.metrics().at("clip"), 3.7);
}

TEST(AdaptiveClipping, SharesTheNoiseOut) {
  PrivacyConfig privacy = Gaussian(1, 2);
  privacy.clip_quantile = 0.5;
  privacy.count_noise = 1.5;
  RoundLoop fixed = Loop(Gaussian(1, 2), 30, 100), adaptive = Loop(privacy, 30, 100);
  ASSERT_TRUE(fixed.Round({}).ok() && adaptive.Round({}).ok());
  const double share = 1 / std::sqrt(1 / 4.0 - 1 / 9.0);  // z_Δ
  EXPECT_NEAR(adaptive.Model()[0], fixed.Model()[0] * share / 2, 1e-12);
  EXPECT_EQ(adaptive.metrics().at("epsilon"), fixed.metrics().at("epsilon"));
}

TEST(AdaptiveClipping, GoesOnAfterAResume) {
  PrivacyConfig privacy = Gaussian(2, 0.5);
  privacy.clip_quantile = 0.5;
  privacy.count_noise = 1;
  RoundLoop whole = Loop(privacy, 4), first = Loop(privacy, 4), second = Loop(privacy, 4);
  for (RoundLoop* loop : {&whole, &first}) ASSERT_TRUE(loop->Round({1, 8}).ok());
  ASSERT_TRUE(second.ResumeFrom(first).ok());
  for (RoundLoop* loop : {&whole, &second}) {
    const absl::Status status = loop->Round({3, 9});
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(second.ModelDigest(), whole.ModelDigest());
  EXPECT_EQ(second.metrics(), whole.metrics());
  EXPECT_NE(second.metrics().at("clip"), 2);
  ServerState state = first.server().Save();
  state.numbers.clear();
  EXPECT_THAT(second.server().Load(state).message(), HasSubstr("privacy_clip"));
}

TEST(AdaptiveClipping, StaysWithinBoundsWhateverTheCountsNoise) {
  PrivacyConfig privacy = Gaussian(2, 1);
  privacy.clip_quantile = 0.5;
  privacy.count_noise = 1e9;
  RoundLoop loop = Loop(privacy, 4);
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(loop.Round({8}).ok());
    EXPECT_GE(loop.metrics().at("clip"), 2 / kClipRange);
    EXPECT_LE(loop.metrics().at("clip"), 2 * kClipRange);
    EXPECT_GE(loop.metrics().at("clipped"), 0);
    EXPECT_LE(loop.metrics().at("clipped"), 1);
  }
}

// What a rule sees of it: the planned cohort, whoever came.
class Spy final : public ServerAlgorithm {
 public:
  explicit Spy(FlatVector model) : model_(std::move(model)) {}
  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    return Broadcast{{"model", model_.view()}};
  }
  absl::StatusOr<AfterApply> Apply(const ServerContext&, aggregation::Aggregate all) override {
    EXPECT_EQ(all.clients, 4);
    EXPECT_EQ(all.channels[0].weight, 4);
    EXPECT_EQ(all.channels[0].max_abs, 0);
    model_ = std::move(all.channels[0].value);
    return AfterApply::kRoundDone;
  }
  ConstVectorView Model() const override { return model_.view(); }
  ServerState Save() const override { return {}; }
  absl::Status Load(const ServerState&) override { return absl::OkStatus(); }

 private:
  FlatVector model_;
};

TEST(Privacy, RulesDoNotSeeAClientsLargestNumber) {
  Description rule = Builtin("fedavg");
  rule.server = [](const algorithms::Setup&,
                   FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    return std::make_unique<Spy>(std::move(model));
  };
  RoundLoop loop(WithPrivacy(rule, Gaussian(0.5, 3), kRounds),
                 {{std::make_shared<Slope>(Numbers{3, 4}), 1}},
                 {.steps = 1, .start = Numbers(2), .cohort = Poisson(4)});
  ASSERT_TRUE(loop.Round({0}).ok());
}

TEST(Privacy, RulesDoNotSeeHowManyCame) {
  Description rule = Builtin("fedavg");
  rule.server = [](const algorithms::Setup& setup,
                   FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    EXPECT_EQ(setup.cohort.sampling, "uniform");
    return std::make_unique<Spy>(std::move(model));
  };
  Numbers seen;
  for (const std::vector<size_t>& came : {std::vector<size_t>{}, {0}, {0, 0, 0, 0, 0, 0, 0}}) {
    RoundLoop loop(WithPrivacy(rule, Gaussian(0.5, 3), kRounds),
                   {{std::make_shared<Slope>(Numbers(2)), 1}},
                   {.steps = 1, .start = Numbers(2), .cohort = Poisson(4)});
    ASSERT_TRUE(loop.Round(came).ok());
    if (seen.empty()) seen = loop.Model();
    EXPECT_EQ(loop.Model(), seen);
  }
}

}  // namespace
}  // namespace macaw::algorithms
