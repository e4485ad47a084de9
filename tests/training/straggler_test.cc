#include "training/api/straggler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "plan/local_steps.h"

namespace macaw::training {
namespace {

constexpr uint32_t kClients = 20'000;

TEST(Straggler, AFractionOfTheClientsIsSlowAndOthersAreInOtherRounds) {
  const CohortConfig cohort{.seed = 3, .straggler_fraction = 0.9};
  int slow = 0, both = 0;
  for (uint32_t id = 0; id < kClients; ++id) {
    const bool first = IsStraggler(cohort, Round(1), ClientId(id));
    slow += first;
    both += first && IsStraggler(cohort, Round(2), ClientId(id));
  }
  EXPECT_NEAR(slow, 0.9 * kClients, 4 * std::sqrt(0.09 * kClients));
  EXPECT_NEAR(both, 0.81 * kClients, 4 * std::sqrt(0.81 * 0.19 * kClients));
}

TEST(Straggler, PartialWorkIsUniformBelowTheWhole) {
  const CohortConfig cohort{.seed = 3, .straggler_fraction = 1};
  std::map<uint32_t, int> epochs;
  for (uint32_t id = 0; id < kClients; ++id) {
    const LocalConfig work = WorkOf(cohort, {.epochs = 5}, Round(1), ClientId(id), 9);
    EXPECT_EQ(work.steps, 0u);
    ++epochs[work.epochs];
  }
  ASSERT_EQ(epochs.size(), 4u);
  for (const auto& [amount, count] : epochs) {
    EXPECT_TRUE(amount >= 1 && amount <= 4) << amount;
    EXPECT_NEAR(count, kClients / 4.0, 4 * std::sqrt(kClients * 0.25 * 0.75));
  }
  const LocalConfig steps = WorkOf(cohort, {.epochs = 5, .steps = 2}, Round(1), ClientId(1), 9);
  EXPECT_EQ(steps.steps, 1u);
  EXPECT_EQ(steps.epochs, 5u);
}

// 47 rows are five batches.
TEST(Straggler, OfOneEpochDoesAPartOfItsSteps) {
  const CohortConfig cohort{.seed = 3, .straggler_fraction = 1};
  std::map<uint32_t, int> steps;
  for (uint32_t id = 0; id < kClients; ++id) {
    const LocalConfig work = WorkOf(cohort, {.epochs = 1}, Round(1), ClientId(id), 47);
    EXPECT_EQ(work.epochs, 1u);
    ++steps[work.steps];
  }
  ASSERT_EQ(steps.size(), 4u);
  for (const auto& [amount, count] : steps) {
    EXPECT_TRUE(amount >= 1 && amount <= 4) << amount;
    EXPECT_NEAR(count, kClients / 4.0, 4 * std::sqrt(kClients * 0.25 * 0.75));
  }
  // Without the last batch, which is not full, they are four.
  for (uint32_t id = 0; id < 100; ++id) {
    const LocalConfig full = {.epochs = 1, .drop_last = true};
    EXPECT_LE(WorkOf(cohort, full, Round(1), ClientId(id), 47).steps, 3u);
  }
}

// 21 rows are three batches, of which batch norm joins the last two.
TEST(Straggler, DoesLessThanItsWholeWorkWhereBatchesAreJoined) {
  const CohortConfig cohort{.seed = 3, .straggler_fraction = 1};
  std::map<uint32_t, int> steps, joined;
  for (uint32_t id = 0; id < 200; ++id) {
    ++steps[WorkOf(cohort, {.epochs = 1}, Round(1), ClientId(id), 21).steps];
    ++joined[WorkOf(cohort, {.epochs = 1}, Round(1), ClientId(id), 21, /*joins=*/true).steps];
  }
  EXPECT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps.rbegin()->first, 2u);
  ASSERT_EQ(joined.size(), 1u);
  EXPECT_EQ(joined.begin()->first, 1u);
  EXPECT_EQ(StepsOf({.epochs = 2}, 21), 6u);
  EXPECT_EQ(StepsOf({.epochs = 2}, 21, /*joins=*/true), 4u);
}

TEST(Straggler, NobodyIsSlowerThanOneStepOrWhereNoneIsAskedFor) {
  const auto steps = [](const LocalConfig& local, uint64_t rows) {
    const LocalConfig work = WorkOf({.straggler_fraction = 1}, local, Round(1), ClientId(1), rows);
    return StepsOf(work, rows);
  };
  EXPECT_EQ(steps({.epochs = 1}, 10), 1u);
  EXPECT_EQ(steps({.epochs = 1, .batch_size = 0}, 500), 1u);
  EXPECT_EQ(steps({.steps = 1}, 500), 1u);
  EXPECT_EQ(WorkOf({}, {.epochs = 5}, Round(1), ClientId(1), 9).epochs, 5u);
  EXPECT_EQ(WorkOf({.straggler_fraction = 1, .straggler_policy = "drop"}, {.epochs = 5}, Round(1),
                   ClientId(1), 9)
                .epochs,
            5u);
}

TEST(Straggler, TheDroppedOnesAreAShareThatDoesNotTrain) {
  EXPECT_EQ(ShareThatTrains({}), 1);
  EXPECT_EQ(ShareThatTrains({.straggler_fraction = 0.25}), 1);
  EXPECT_EQ(ShareThatTrains({.straggler_fraction = 0.25, .straggler_policy = "drop"}), 0.75);
}

}  // namespace
}  // namespace macaw::training
