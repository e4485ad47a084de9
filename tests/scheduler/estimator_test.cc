#include "scheduler/estimator.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/scheduler/cohorts.h"

namespace macaw::scheduler {
namespace {

using fixtures::NoisyFactor;

constexpr WorkerId kFast(1), kSlow(2), kNew(3);

// 20 ms per client, 0.1 ms per row to load, 2 ms per row and 5 ms per step to train.
Timing TimingOf(const CohortEntry& entry, double factor) {
  const auto rows = static_cast<double>(entry.load);
  return {.load_seconds = 1e-4 * rows * factor,
          .train_seconds = (0.02 + 2e-3 * rows + 5e-3 * static_cast<double>(entry.steps)) * factor};
}

// Steps must not be proportional to rows, or their coefficients could not be distinguished.
CohortEntry Draw(RandomStream& stream) {
  const uint64_t rows = 1 + stream.Below(500);
  return {.client = ClientId(stream.Below(1000)), .load = rows, .steps = 1 + stream.Below(200)};
}

void Rounds(Estimator& estimator, WorkerId worker, int rounds, double factor, double noise,
            uint64_t seed) {
  RandomStream stream({.seed = seed});
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 20; ++i) {
      const CohortEntry entry = Draw(stream);
      estimator.Observe(worker, entry, TimingOf(entry, factor * NoisyFactor(stream, noise)));
    }
    estimator.EndRound();
  }
}

double ErrorOf(const Estimator& estimator, WorkerId worker, double factor) {
  RandomStream stream({.seed = 99});
  double worst = 0;
  for (int i = 0; i < 50; ++i) {
    const CohortEntry entry = Draw(stream);
    const Timing truth = TimingOf(entry, factor);
    const double seconds = truth.load_seconds + truth.train_seconds;
    worst = std::max(worst, std::abs(estimator.Predict(worker, entry).seconds / seconds - 1));
  }
  return worst;
}

TEST(Estimator, FindsTheTrueCoefficients) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  Rounds(estimator, kFast, 60, 1, 0, 1);
  const Costs costs = estimator.CostsOf(kFast);
  EXPECT_TRUE(costs.known);
  EXPECT_NEAR(costs.fixed, 0.02, 1e-4);
  EXPECT_NEAR(costs.row_load, 1e-4, 1e-6);
  EXPECT_NEAR(costs.row, 2e-3, 1e-5);
  EXPECT_NEAR(costs.step, 5e-3, 2e-5);
  EXPECT_NEAR(costs.log_step, 0, 1e-4);
  EXPECT_LT(costs.uncertainty, 0.05);
}

TEST(Estimator, IsCloseUnderNoiseAndSaysHowNoisyItIs) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  Rounds(estimator, kFast, 40, 1, 0.3, 2);
  EXPECT_LT(ErrorOf(estimator, kFast, 1), 0.15);
  EXPECT_NEAR(estimator.CostsOf(kFast).uncertainty, 0.3, 0.1);
  const Prediction prediction = estimator.Predict(kFast, {.load = 100, .steps = 10});
  EXPECT_NEAR(prediction.deviation / prediction.seconds, 0.3, 0.1);
}

TEST(Estimator, NoCoefficientIsEverNegative) {
  RandomStream stream({.seed = 4});
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 5; ++i) {  // times that have nothing to do with the client's work
      estimator.Observe(kFast, Draw(stream), {.train_seconds = stream.Uniform()});
    }
    estimator.EndRound();
    const Costs costs = estimator.CostsOf(kFast);
    for (const double term : {costs.fixed, costs.row, costs.step, costs.log_step, costs.row_load})
      EXPECT_GE(term, 0);
  }
}

TEST(Estimator, RecoversFromAnOutlierOfAHundredTimesWithinThreeRounds) {
  for (const double noise : {0.0, 0.1, 0.3}) {
    Estimator estimator;
    estimator.AddWorker(kFast, "cpu");
    Rounds(estimator, kFast, 20, 1, noise, 5);
    const CohortEntry paused{.load = 400, .steps = 40};
    estimator.Observe(kFast, paused, TimingOf(paused, 100));
    Rounds(estimator, kFast, 3, 1, noise, 6);
    EXPECT_LT(ErrorOf(estimator, kFast, 1), 0.02 + noise / 1.5);
  }
}

TEST(Estimator, AnOutlierAmongTheFirstTimesIsForgotten) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  const CohortEntry paused{.load = 400, .steps = 40};
  estimator.Observe(kFast, paused, TimingOf(paused, 100));
  Rounds(estimator, kFast, 3, 1, 0.1, 7);
  EXPECT_LT(ErrorOf(estimator, kFast, 1), 0.25);
}

TEST(Estimator, FollowsAMachineThatSlowsDownForGood) {
  for (const double noise : {0.0, 0.3}) {
    Estimator estimator;
    estimator.AddWorker(kFast, "cpu");
    Rounds(estimator, kFast, 20, 1, noise, 8);
    Rounds(estimator, kFast, 5, 2, noise, 9);
    EXPECT_LT(ErrorOf(estimator, kFast, 2), 0.02 + noise);
  }
}

TEST(Estimator, EqualDevicesShareWhatTheyKnow) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  Rounds(estimator, kFast, 20, 1, 0, 10);
  estimator.AddWorker(kNew, "cpu");
  EXPECT_LT(ErrorOf(estimator, kNew, 1), 0.05);
  EXPECT_FALSE(estimator.CostsOf(kNew).known);
  EXPECT_GT(estimator.CostsOf(kNew).uncertainty, 1);
  estimator.AddWorker(kSlow, "another");
  EXPECT_EQ(estimator.CostsOf(kSlow).row, Costs{}.row);  // nothing is known of such a device
}

// One of two equal devices is slower: a few times tell by which factor, and the shape of the costs
// comes from the other.
TEST(Estimator, AFewTimesScaleTheSharedPrior) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  Rounds(estimator, kFast, 20, 1, 0, 11);
  estimator.AddWorker(kSlow, "cpu");
  for (const uint64_t rows : {50, 60, 70, 80}) {
    const CohortEntry entry{.load = rows, .steps = rows / 10};
    estimator.Observe(kSlow, entry, TimingOf(entry, 3));
  }
  estimator.EndRound();
  EXPECT_LT(ErrorOf(estimator, kSlow, 3), 0.35);
  Rounds(estimator, kSlow, 5, 3, 0, 12);
  EXPECT_LT(ErrorOf(estimator, kSlow, 3), 0.05);
  EXPECT_LT(ErrorOf(estimator, kFast, 1), 0.05);
}

TEST(Estimator, OfVeryManyKindsOfDevicesItKeepsThoseOfItsWorkers) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  Rounds(estimator, kFast, 20, 1, 0, 13);
  estimator.AddWorker(kSlow, "gone");
  Rounds(estimator, kSlow, 20, 1, 0, 14);
  estimator.RemoveWorker(kSlow);
  estimator.AddWorker(kSlow, "gone");
  EXPECT_NE(estimator.CostsOf(kSlow).row, Costs{}.row) << "few kinds are kept";
  estimator.RemoveWorker(kSlow);
  for (int i = 0; i < 2000; ++i) {
    estimator.AddWorker(kNew, absl::StrCat("device ", i));
    estimator.RemoveWorker(kNew);
  }
  estimator.AddWorker(kNew, "cpu");
  EXPECT_LT(ErrorOf(estimator, kNew, 1), 0.05);
  estimator.AddWorker(kSlow, "gone");
  EXPECT_EQ(estimator.CostsOf(kSlow).row, Costs{}.row);
}

TEST(Estimator, ReadingAStateHasItsOwnTerm) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  RandomStream stream({.seed = 13});
  for (int i = 0; i < 50; ++i) {
    CohortEntry entry = Draw(stream);
    entry.has_state = true;
    Timing timing = TimingOf(entry, 1);
    timing.state_seconds = 0.004;
    estimator.Observe(kFast, entry, timing);
  }
  estimator.EndRound();
  EXPECT_NEAR(estimator.CostsOf(kFast).state, 0.004, 1e-4);
  const CohortEntry without{.load = 100, .steps = 10},
      with{.load = 100, .steps = 10, .has_state = true};
  EXPECT_NEAR(estimator.Predict(kFast, with).seconds - estimator.Predict(kFast, without).seconds,
              0.004, 1e-4);
}

TEST(Estimator, IgnoresInvalidTimes) {
  Estimator estimator;
  estimator.AddWorker(kFast, "cpu");
  estimator.Observe(kFast, {.load = 10, .steps = 1}, {.train_seconds = NAN});
  estimator.Observe(kFast, {.load = 10, .steps = 1}, {.train_seconds = -1});
  estimator.Observe(kNew, {.load = 10, .steps = 1}, {.train_seconds = 1});
  EXPECT_FALSE(estimator.CostsOf(kFast).known);
  EXPECT_EQ(estimator.CostsOf(kNew).row, Costs{}.row);
}

}  // namespace
}  // namespace macaw::scheduler
