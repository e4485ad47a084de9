// Robust rules that weigh updates by what clients report, and the server's bound on norms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/robust_util.h"

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const Parameters kWeighted = {{"weighted", true}};

Parameters Rfa(int64_t iterations, double smoothing) {
  return {{"weighted", true}, {"iterations", iterations}, {"smoothing", smoothing}};
}

TEST(WeightedGeometricMedian, TakesASmoothedWeiszfeldStepByHand) {
  // It starts at the median by coordinate, (0, 0). With ν = 1: β = 1/1, 2/4, 1/3, so
  // z = (½·4, ⅓·3)/(11/6).
  const ServerRound all{.updates = {{0, 0}, {4, 0}, {0, 3}}, .weights = {1, 2, 1}};
  EXPECT_LT(Distance(all.Of("geometric_median", Rfa(1, 1)).model, {12.0 / 11, 6.0 / 11}), 1e-14);
  // Without weights: β = 1, 1/4, 1/3.
  Parameters unweighted = Rfa(1, 1);
  unweighted["weighted"] = false;
  EXPECT_LT(Distance(all.Of("geometric_median", unweighted).model, {12.0 / 19, 12.0 / 19}), 1e-14);
}

TEST(WeightedGeometricMedian, OfALineIsItsWeightedMedian) {
  const ServerRound all{.updates = {{0, 0}, {4, 0}, {10, 0}}, .weights = {3, 1, 1}};
  EXPECT_LT(Distance(all.Of("geometric_median", Rfa(500, 1e-9)).model, {0, 0}), 1e-6);
  EXPECT_LT(Distance(all.Of("geometric_median", {{"iterations", int64_t{500}}}).model, {4, 0}),
            1e-5);
}

TEST(WeightedGeometricMedian, LeavesOutUpdatesWithoutWeight) {
  const ServerRound all{.updates = {{1, 1}, {50, 0}, {1, 1}, {0, 70}}, .weights = {2, 0, 1, -9}};
  EXPECT_EQ(all.Of("geometric_median", Rfa(10, 1e-6)).model, (Numbers{1, 1}));
  const ServerRound none{.updates = {{1, 1}, {5, 0}}, .weights = {0, -1}};
  EXPECT_EQ(none.Of("geometric_median", Rfa(10, 1e-6)).model, (Numbers{0, 0}));
}

TEST(NormBound, ScalesLongUpdatesDownByHand) {
  // ‖(3, 4)‖ = 5 becomes 1; (0, .5) and (1, 0) stay.
  const ServerRound all{.updates = {{3, 4}, {0, .5}, {1, 0}}};
  const auto outcome = all.Of("norm_bound");
  EXPECT_LT(Distance(outcome.model, {1.6 / 3, 1.3 / 3}), 1e-15);
  EXPECT_DOUBLE_EQ(outcome.metrics.at("bounded"), 1.0 / 3);
  EXPECT_LT(Distance(all.Of("norm_bound", {{"bound", 2.0}}).model, {2.2 / 3, 2.1 / 3}), 1e-15);
  EXPECT_EQ(all.Of("norm_bound", {{"bound", 5.0}}).metrics.at("bounded"), 0);
  const ServerRound weighed{.updates = all.updates, .weights = {2, 1, 1}};
  EXPECT_LT(Distance(weighed.Of("norm_bound", kWeighted).model, {2.2 / 4, 2.1 / 4}), 1e-15);
}

TEST(NormBound, OneOutlierMovesItByTheBoundOverN) {
  for (const double size : {1.0, 1e3, 1e9}) {
    const ServerRound all{.updates = {{.1, 0}, {-.1, 0}, {0, size}, {0, 0}}};
    EXPECT_LT(Distance(all.Of("norm_bound").model, {0, .25}), 1e-12) << size;
  }
}

TEST(NormBound, WithReportedWeightsAndNothingToBoundIsFedAvg) {
  RoundLoop bound(Builtin("norm_bound"), Q4(),
                  {.parameters = {{"weighted", true}, {"bound", 1e6}}});
  RoundLoop fedavg(Builtin("fedavg"), Q4(), {});
  ASSERT_TRUE(bound.Rounds(20).ok());
  ASSERT_TRUE(fedavg.Rounds(20).ok());
  EXPECT_LT(Distance(bound.Model(), fedavg.Model()), 1e-12);
  EXPECT_EQ(bound.metrics().at("bounded"), 0);
}

TEST(ReportedWeights, AreOnlyAskedForWhereTheyCount) {
  for (const char* name : {"geometric_median", "norm_bound"}) {
    const Description rule = Builtin(name);
    const auto channels = [&](const Parameters& parameters) {
      return rule.schema(SetupOfRule(name, parameters, Plain(2, DType::kF32)))->up.size();
    };
    EXPECT_EQ(channels({}), 1u) << name;
    EXPECT_EQ(channels(kWeighted), 2u) << name;
    const auto notes = [&](const Parameters& parameters) {
      auto setup = SetupOfRule(name, parameters, Plain(2, DType::kF32));
      setup.cohort.size = 10;
      return rule.notes(setup);
    };
    EXPECT_THAT(notes({}), testing::Contains(HasSubstr("judges clients alike")));
    EXPECT_THAT(notes(kWeighted), IsEmpty());
  }
}

TEST(ReportedWeights, OfHostileClientsAreThoseOfHonestOnes) {
  // With nothing to bound the rule is FedAvg, so under an attack it is FedAvg under the attack: a
  // free-rider counts with its weight, and a flipped update is not also left out.
  for (const char* kind : {"free-rider", "sign-flip", "scaling"}) {
    const AttackConfig attack = Of(kind, .5);
    RoundLoop bound(Under(attack, "norm_bound", 4), Q4(),
                    {.parameters = {{"weighted", true}, {"bound", 1e6}}});
    RoundLoop fedavg(Under(attack, "fedavg", 4), Q4(), {});
    ASSERT_TRUE(bound.Rounds(2).ok());
    ASSERT_TRUE(fedavg.Rounds(2).ok());
    EXPECT_LT(Distance(bound.Model(), fedavg.Model()), 1e-9) << kind;
  }
  // Those that are made on the server have the honest clients' mean weight: with one weight for all
  // nothing differs from the plain rule.
  std::vector<TestPopulationClient> equal = Q4();
  for (TestPopulationClient& client : equal) client.examples = 3;
  for (const char* kind : {"inner-product", "alie", "min-max", "min-sum", "mimic"}) {
    RoundLoop weighted(Under(Of(kind, .5), "geometric_median", 4), equal,
                       {.parameters = kWeighted});
    RoundLoop plain(Under(Of(kind, .5), "geometric_median", 4), equal, {});
    ASSERT_TRUE(weighted.Rounds(3).ok());
    ASSERT_TRUE(plain.Rounds(3).ok());
    EXPECT_LT(Distance(weighted.Model(), plain.Model()), 1e-9) << kind;
  }
}

TEST(ReportedWeights, DecideAndStayOnAResume) {
  RoundLoop weighted(Builtin("geometric_median"), Q4(), {.parameters = kWeighted});
  RoundLoop plain(Builtin("geometric_median"), Q4(), {});
  ASSERT_TRUE(weighted.Rounds(2).ok());
  ASSERT_TRUE(plain.Rounds(2).ok());
  EXPECT_NE(weighted.ModelDigest(), plain.ModelDigest());
  RoundLoop resumed(Builtin("geometric_median"), Q4(), {.parameters = kWeighted});
  ASSERT_TRUE(resumed.ResumeFrom(weighted).ok());
  ASSERT_TRUE(resumed.Rounds(2).ok());
  ASSERT_TRUE(weighted.Rounds(2).ok());
  EXPECT_EQ(resumed.ModelDigest(), weighted.ModelDigest());
}

}  // namespace
}  // namespace macaw::algorithms
