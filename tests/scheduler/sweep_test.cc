#include "scheduler/sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace macaw::scheduler {
namespace {

TEST(KeyedPermutation, IsAPermutationForEverySize) {
  for (uint64_t size = 1; size < 300; ++size) {
    const KeyedPermutation permutation({.seed = size}, size);
    std::set<uint64_t> values;
    for (uint64_t i = 0; i < size; ++i) values.insert(permutation(i));
    ASSERT_EQ(values.size(), size);
    ASSERT_EQ(*values.rbegin(), size - 1);
  }
}

TEST(KeyedPermutation, PutsEveryValueEverywhereEquallyOften) {
  constexpr uint64_t kSize = 10, kKeys = 20000;
  std::vector<double> counts(kSize * kSize);
  for (uint64_t seed = 0; seed < kKeys; ++seed) {
    const KeyedPermutation permutation({.seed = seed}, kSize);
    for (uint64_t i = 0; i < kSize; ++i) ++counts[i * kSize + permutation(i)];
  }
  // Pearson's chi-squared in standard deviations; rows and columns sum up to kKeys.
  double chi2 = 0;
  const double expected = static_cast<double>(kKeys) / kSize;
  for (const double count : counts) chi2 += (count - expected) * (count - expected) / expected;
  const double freedom = (kSize - 1) * (kSize - 1);
  EXPECT_LT(std::abs(chi2 - freedom) / std::sqrt(2 * freedom), 4);
}

std::vector<uint64_t> Ids(const Cohort& cohort) {
  std::vector<uint64_t> ids;
  for (const CohortEntry& entry : cohort.entries) ids.push_back(entry.client.value);
  return ids;
}

TEST(SweepSampler, EveryClientComesOnceASweepInRoundsOfEqualSize) {
  const std::vector<uint32_t> examples(1050, 7);
  const auto sampler = *MakeSampler({.size = 100, .sampling = "sweep", .seed = 3}, examples);
  std::vector<std::vector<uint64_t>> first_rounds;
  for (uint32_t sweep = 0; sweep < 3; ++sweep) {
    std::set<uint64_t> seen;
    for (uint32_t round = 1; round <= 11; ++round) {
      const Cohort cohort = sampler->Sample(Round(11 * sweep + round));
      EXPECT_GE(cohort.entries.size(), 95u);
      EXPECT_LE(cohort.entries.size(), 96u);
      const std::vector<uint64_t> ids = Ids(cohort);
      EXPECT_TRUE(std::ranges::is_sorted(ids));
      for (const CohortEntry& entry : cohort.entries) {
        EXPECT_EQ(entry.load, 7u);
        EXPECT_EQ(entry.multiplicity, 1u);
        EXPECT_TRUE(seen.insert(entry.client.value).second);
      }
      if (round == 1) first_rounds.push_back(ids);
    }
    EXPECT_EQ(seen.size(), 1050u);
  }
  EXPECT_NE(first_rounds[0], first_rounds[1]);
  EXPECT_NE(first_rounds[1], first_rounds[2]);
}

TEST(SweepSampler, DependsOnSeedAndRoundOnly) {
  const std::vector<uint32_t> examples(1000000, 1);
  const auto sampler = *MakeSampler({.size = 1000, .sampling = "sweep", .seed = 3}, examples);
  const auto other = *MakeSampler({.size = 1000, .sampling = "sweep", .seed = 4}, examples);
  const std::vector<uint64_t> late = Ids(sampler->Sample(Round(999)));
  EXPECT_EQ(late.size(), 1000u);
  sampler->Sample(Round(5));
  EXPECT_EQ(Ids(sampler->Sample(Round(999))), late);
  EXPECT_NE(Ids(other->Sample(Round(999))), late);
  EXPECT_NE(Ids(sampler->Sample(Round(1999))), late) << "the next sweep has an order of its own";
}

TEST(SweepSampler, CyclicSweepsHaveOneOrder) {
  const std::vector<uint32_t> examples(25, 1);
  const CohortConfig config{.size = 10, .sampling = "cyclic", .seed = 3};
  const auto sampler = *MakeSampler(config, examples);
  std::set<uint64_t> seen;
  for (uint32_t round = 1; round <= 3; ++round) {
    const std::vector<uint64_t> ids = Ids(sampler->Sample(Round(round)));
    seen.insert(ids.begin(), ids.end());
    EXPECT_EQ(Ids(sampler->Sample(Round(round + 3))), ids);
    EXPECT_EQ(Ids(sampler->Sample(Round(round + 300))), ids);
  }
  EXPECT_EQ(seen.size(), 25u);
}

TEST(SizeOfRounds, IsThatOfTheCohortsOfEverySweep) {
  for (const char* sampling : {"sweep", "cyclic"}) {
    for (const uint64_t clients : {1, 11, 12, 13, 40}) {
      const std::vector<uint32_t> examples(clients, 1);
      for (uint64_t size = 1; size <= clients; ++size) {
        const CohortConfig config{.size = size, .sampling = sampling};
        const auto sampler = *MakeSampler(config, examples);
        std::set<uint64_t> sizes;
        for (uint32_t round = 1; round <= clients; ++round)
          sizes.insert(sampler->Sample(Round(round)).entries.size());
        const RoundSize told = SizeOfRounds(config, clients);
        EXPECT_EQ(told.least, *sizes.begin()) << size << " of " << clients;
        EXPECT_EQ(told.most, *sizes.rbegin()) << size << " of " << clients;
        EXPECT_LE(told.most, size);
      }
    }
  }
}

TEST(SizeOfRounds, OfOtherSamplingsAndOfUnknownClientsIsTheKey) {
  const CohortConfig sweep{.size = 11, .sampling = "sweep"};
  EXPECT_EQ(SizeOfRounds(sweep, 12).most, 6u);
  EXPECT_EQ(SizeOfRounds(sweep, 0).most, 11u) << "a fleet's clients are not known before";
  EXPECT_EQ(SizeOfRounds({.size = 11}, 12).least, 11u);
  EXPECT_EQ(SizeOfRounds({}, 12).most, 0u);
}

TEST(SweepSampler, ACohortOfEverybodyIsEverybodyEachRound) {
  const std::vector<uint32_t> examples(20, 1);
  const auto sampler = *MakeSampler({.size = 20, .sampling = "sweep"}, examples);
  EXPECT_EQ(sampler->Sample(Round(1)).entries.size(), 20u);
  EXPECT_EQ(sampler->Sample(Round(2)).entries.size(), 20u);
}

}  // namespace
}  // namespace macaw::scheduler
