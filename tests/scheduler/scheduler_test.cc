#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/random.h"
#include "scheduler/cohort.h"
#include "tests/scheduler/surprise.h"

namespace macaw::scheduler {
namespace {

using fixtures::Surprise;

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

// Buckets of a population of ten million; a hundred rounds of a thousand each.
TEST(UniformSampler, IsExactOverTenMillionClients) {
  const std::vector<uint32_t> examples(10'000'000, 1);
  const auto sampler = *MakeSampler({.size = 1000, .seed = 11}, examples);
  constexpr size_t kBuckets = 64;
  std::vector<double> counts(kBuckets);
  for (uint32_t round = 1; round <= 100; ++round) {
    const Cohort cohort = sampler->Sample(Round(round));
    ASSERT_EQ(cohort.entries.size(), 1000u);
    for (size_t i = 0; i < cohort.entries.size(); ++i) {
      ASSERT_TRUE(i == 0 || cohort.entries[i - 1].client < cohort.entries[i].client);
      ++counts[cohort.entries[i].client.value * kBuckets / examples.size()];
    }
  }
  EXPECT_LT(std::abs(Surprise(counts, std::vector<double>(kBuckets, 1e5 / kBuckets))), 4);
}

// For all pairs out of five clients: not only each client but each subset is equally likely.
TEST(UniformSampler, EverySubsetIsEquallyLikely) {
  const std::vector<uint32_t> examples(5, 1);
  const auto sampler = *MakeSampler({.size = 2, .seed = 12}, examples);
  std::vector<double> counts(10);
  constexpr uint32_t kRounds = 20000;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    const Cohort cohort = sampler->Sample(Round(round));
    const uint64_t a = cohort.entries[0].client.value, b = cohort.entries[1].client.value;
    ++counts[b * (b - 1) / 2 + a];
  }
  EXPECT_LT(std::abs(Surprise(counts, std::vector<double>(10, kRounds / 10.0))), 4);
}

TEST(MakeSampler, DrawsOnlyClientsWithTrainingRowsAndFullCohortsOfThem) {
  std::vector<uint32_t> examples(100, 7);
  for (size_t client = 0; client < 100; client += 5) examples[client] = 0;
  for (const char* sampling : {"uniform", "poisson", "sweep", "available", "proportional"}) {
    const bool proportional = std::string(sampling) == "proportional";
    const auto sampler =
        *MakeSampler({.size = 40,
                      .sampling = sampling,
                      .weight = proportional ? WeightPolicy::kUniform : WeightPolicy::kExamples,
                      .seed = 8,
                      .availability = 1},
                     examples);
    double drawn = 0;
    std::set<ClientId> seen;
    for (uint32_t round = 1; round <= 200; ++round) {
      for (const CohortEntry& entry : sampler->Sample(Round(round)).entries) {
        EXPECT_NE(entry.client.value % 5, 0u) << sampling;
        EXPECT_EQ(entry.load, 7u);
        drawn += entry.multiplicity;
        seen.insert(entry.client);
      }
    }
    EXPECT_NEAR(drawn / 200, 40, 2) << sampling;
    EXPECT_EQ(seen.size(), 80u) << sampling;
  }
}

TEST(MakeSampler, EverybodyWhoCanTrainIsTheLargestCohort) {
  const std::vector<uint32_t> examples = {3, 0, 1, 0, 9};
  EXPECT_EQ((*MakeSampler({.size = 3}, examples))->Sample(Round(1)).entries.size(), 3u);
  EXPECT_THAT(std::string(MakeSampler({.size = 4}, examples).status().message()),
              testing::HasSubstr("3 of the population's 5 clients have training rows"));
  EXPECT_THAT(std::string(MakeSampler({.size = 1}, std::vector<uint32_t>(4)).status().message()),
              testing::HasSubstr("none of the 4 clients"));
}

TEST(MakeSampler, RefusesACohortLargerThanThePopulation) {
  const std::vector<uint32_t> examples(10, 1);
  const absl::Status status = MakeSampler({.size = 11}, examples).status();
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("population has 10 clients"));
  EXPECT_FALSE(MakeSampler({.size = 5, .sampling = "magic"}, examples).ok());
}

}  // namespace
}  // namespace macaw::scheduler
