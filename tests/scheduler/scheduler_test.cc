#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/random.h"
#include "scheduler/cohort.h"
#include "scheduler/dispatch.h"
#include "scheduler/plan.h"

namespace macaw::scheduler {
namespace {

Cohort MakeCohort(const std::vector<uint64_t>& loads) {
  Cohort cohort{.round = Round(1)};
  for (size_t i = 0; i < loads.size(); ++i)
    cohort.entries.push_back({.client = ClientId(i), .load = loads[i]});
  return cohort;
}

uint64_t LoadOf(const WorkerQueue& queue) {
  uint64_t load = 0;
  for (const CohortEntry& entry : queue.queue) load += entry.load;
  return load;
}

TEST(UniformSampler, DependsOnSeedAndRoundOnly) {
  const std::vector<uint32_t> examples(1000, 7);
  const auto sampler = *MakeSampler({.size = 100, .seed = 3}, examples);
  const auto other = *MakeSampler({.size = 100, .seed = 4}, examples);
  const auto ids = [](const Cohort& cohort) {
    std::vector<uint64_t> out;
    for (const CohortEntry& entry : cohort.entries) out.push_back(entry.client.value);
    return out;
  };
  const auto first = ids(sampler->Sample(Round(1)));
  sampler->Sample(Round(2));
  EXPECT_EQ(ids(sampler->Sample(Round(1))), first);
  EXPECT_NE(ids(sampler->Sample(Round(2))), first);
  EXPECT_NE(ids(other->Sample(Round(1))), first);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  EXPECT_EQ(std::set<uint64_t>(first.begin(), first.end()).size(), 100u);
}

// Pearson's χ² of counts against expectations, in standard deviations from its mean.
double Surprise(const std::vector<double>& counts, const std::vector<double>& expected) {
  double chi2 = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    chi2 += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  }
  const double freedom = static_cast<double>(counts.size() - 1);
  return (chi2 - freedom) / std::sqrt(2 * freedom);
}

TEST(ProportionalSampler, DrawsByExamplesWithReplacement) {
  const std::vector<uint32_t> examples = {5, 0, 10, 85, 100, 1, 199};
  const auto sampler = *MakeSampler(
      {.size = 50, .sampling = "proportional", .weight = WeightPolicy::kUniform}, examples);
  std::vector<double> counts(examples.size()), expected(examples.size());
  constexpr uint32_t kRounds = 2000;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    uint64_t draws = 0;
    ClientId last{};
    for (const CohortEntry& entry : sampler->Sample(Round(round)).entries) {
      EXPECT_TRUE(draws == 0 || last.value < entry.client.value);
      last = entry.client;
      draws += entry.multiplicity;
      counts[entry.client.value] += entry.multiplicity;
    }
    ASSERT_EQ(draws, 50u);
  }
  EXPECT_EQ(counts[1], 0);
  for (size_t i = 0; i < examples.size(); ++i) expected[i] = kRounds * 50.0 * examples[i] / 400.0;
  for (std::vector<double>* values : {&counts, &expected}) values->erase(values->begin() + 1);
  EXPECT_LT(std::abs(Surprise(counts, expected)), 4);
}

TEST(ProportionalSampler, RefusesWeightsThatWouldCountExamplesTwice) {
  const std::vector<uint32_t> examples(10, 1);
  const absl::Status status =
      MakeSampler({.size = 5, .sampling = "proportional"}, examples).status();
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("cohort.weight = \"uniform\""));
}

TEST(PoissonSampler, EveryClientComesOnItsOwnWithTheSameProbability) {
  const std::vector<uint32_t> examples(50, 7);
  const auto sampler = *MakeSampler({.size = 10, .sampling = "poisson", .seed = 5}, examples);
  constexpr uint32_t kRounds = 5000;
  std::vector<double> counts(50), sizes(51);
  double together = 0;  // clients 0 and 1 in one round
  for (uint32_t round = 1; round <= kRounds; ++round) {
    const Cohort cohort = sampler->Sample(Round(round));
    ++sizes[cohort.entries.size()];
    for (const CohortEntry& entry : cohort.entries) ++counts[entry.client.value];
    together += cohort.entries.size() >= 2 && cohort.entries[1].client.value == 1 ? 1 : 0;
  }
  EXPECT_LT(std::abs(Surprise(counts, std::vector<double>(50, kRounds * 0.2))), 4);
  EXPECT_NEAR(together / kRounds, 0.04, 4 * std::sqrt(0.04 * 0.96 / kRounds));
  double mean = 0, square = 0;
  for (size_t size = 0; size < sizes.size(); ++size) {
    mean += sizes[size] * static_cast<double>(size) / kRounds;
    square += sizes[size] * static_cast<double>(size * size) / kRounds;
  }
  EXPECT_NEAR(square - mean * mean, 50 * 0.2 * 0.8, 0.5);  // binomial, not fixed
}

TEST(PoissonSampler, AFractionOfOneIsEverybody) {
  const std::vector<uint32_t> examples(20, 1);
  const auto sampler = *MakeSampler({.size = 20, .sampling = "poisson"}, examples);
  EXPECT_EQ(sampler->Sample(Round(3)).entries.size(), 20u);
}

TEST(MakeSampler, RefusesACohortLargerThanThePopulation) {
  const std::vector<uint32_t> examples(10, 1);
  const absl::Status status = MakeSampler({.size = 11}, examples).status();
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("population has 10 clients"));
  EXPECT_FALSE(MakeSampler({.size = 5, .sampling = "magic"}, examples).ok());
}

TEST(LongestFirstScheduler, IsWithinFourThirdsOfTheBound) {
  RandomStream stream({.seed = 1});
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<uint64_t> loads(200);
    uint64_t total = 0, largest = 0;
    for (uint64_t& load : loads) {
      load = 1 + stream.Below(1000);
      total += load;
      largest = std::max(largest, load);
    }
    const std::vector<WorkerInfo> workers = {{WorkerId(1), 2}, {WorkerId(2), 2}, {WorkerId(3), 4}};
    const Plan plan = LongestFirstScheduler().Assign(MakeCohort(loads), workers);
    uint64_t placed = 0;
    for (const WorkerQueue& queue : plan.queues) {
      placed += queue.queue.size();
      EXPECT_LE(queue.finish, 4.0 / 3 * std::max<double>(total / 8.0, largest) + 1);
    }
    EXPECT_EQ(placed, loads.size());
  }
}

TEST(LongestFirstScheduler, GivesTheFastWorkerMore) {
  const std::vector<WorkerInfo> workers = {{WorkerId(1), 1, 1.0}, {WorkerId(2), 1, 3.0}};
  const Plan plan =
      LongestFirstScheduler().Assign(MakeCohort(std::vector<uint64_t>(400, 10)), workers);
  EXPECT_NEAR(static_cast<double>(LoadOf(plan.queues[1])) / LoadOf(plan.queues[0]), 3.0, 0.1);
  EXPECT_THAT(plan.reason, testing::HasSubstr("400 clients on 2 slots"));
}

TEST(DispatchQueue, HandsEveryClientOutExactlyOnceWhateverTheOrderOfRequests) {
  RandomStream stream({.seed = 2});
  for (int trial = 0; trial < 200; ++trial) {
    const uint64_t workers = 1 + stream.Below(4), clients = stream.Below(60);
    std::vector<WorkerInfo> infos;
    for (uint64_t w = 0; w < workers; ++w)
      infos.push_back({WorkerId(w + 1), 1 + uint32_t(stream.Below(3))});
    std::vector<uint64_t> loads(clients);
    for (uint64_t& load : loads) load = stream.Below(100);
    DispatchQueue queue(LongestFirstScheduler().Assign(MakeCohort(loads), infos));
    std::map<ClientId, int> seen;
    while (!queue.empty()) {
      const WorkerId asking(1 + stream.Below(workers + 1));  // one of them is unknown to the plan
      if (stream.Below(20) == 0) queue.RemoveWorker(asking);
      for (const CohortEntry& entry : queue.Take(asking, 2)) {
        if (stream.Below(10) == 0) {
          queue.PutBack(entry);
        } else {
          ++seen[entry.client];
        }
      }
    }
    EXPECT_EQ(seen.size(), clients);
    for (const auto& [client, count] : seen) EXPECT_EQ(count, 1);
  }
}

TEST(DispatchQueue, PiecesShrinkAndADryWorkerTakesFromTheFullest) {
  const std::vector<WorkerInfo> workers = {{WorkerId(1), 1}, {WorkerId(2), 1}};
  DispatchQueue queue(
      LongestFirstScheduler().Assign(MakeCohort(std::vector<uint64_t>(64, 5)), workers));
  const size_t first = queue.Take(WorkerId(1), 1).size();
  const size_t second = queue.Take(WorkerId(1), 1).size();
  EXPECT_EQ(first, 16u);
  EXPECT_EQ(second, 8u);
  while (queue.size() > 40) queue.Take(WorkerId(1), 1);
  // A piece that is not worth a round trip grows to one that is.
  EXPECT_EQ(queue.Take(WorkerId(1), 1, /*least_load=*/35).size(), 7u);
  while (queue.size() > 32) queue.Take(WorkerId(1), 1);
  EXPECT_EQ(queue.Take(WorkerId(1), 1).size(), 1u);  // from worker 2's queue, one at a time
  EXPECT_EQ(queue.size(), 31u);
}

}  // namespace
}  // namespace macaw::scheduler
