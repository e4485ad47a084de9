// Robust rules that judge means of buckets: Karimireddy, He, Jaggi 2022.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "absl/strings/str_join.h"
#include "tests/algorithms/attack_util.h"
#include "tests/algorithms/robust_util.h"

namespace macaw::algorithms {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

Parameters InBucketsOf(int64_t size, Parameters others = {}) {
  others["bucket_size"] = size;
  return others;
}

// The clients in the order of a round's buckets.
std::vector<size_t> OrderOf(const ServerRound& round) {
  std::vector<size_t> order(round.updates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const ServerContext context{.round = Round(round.round), .seed = round.seed};
  context.Random("buckets").Shuffle(std::span(order));
  return order;
}

TEST(Bucketing, TakesTheMedianOfThreeMeansByHand) {
  for (const uint32_t round : {1u, 2u, 3u, 4u}) {
    const ServerRound all{.updates = {{1, 8}, {2, 64}, {4, 1}, {8, 16}, {16, 2}, {32, 4}},
                          .round = round};
    const std::vector<size_t> order = OrderOf(all);
    Numbers x, y;
    for (size_t b = 0; b < 6; b += 2) {
      x.push_back((all.updates[order[b]][0] + all.updates[order[b + 1]][0]) / 2);
      y.push_back((all.updates[order[b]][1] + all.updates[order[b + 1]][1]) / 2);
    }
    std::ranges::sort(x);
    std::ranges::sort(y);
    EXPECT_EQ(all.Of("median", InBucketsOf(2)).model, (Numbers{x[1], y[1]})) << round;
  }
}

TEST(Bucketing, DrawsBucketsFromSeedAndRound) {
  const auto median = [](uint32_t round, uint64_t seed) {
    const ServerRound all{
        .updates = {{1}, {2}, {4}, {8}, {16}, {32}}, .seed = seed, .round = round};
    return all.Of("median", InBucketsOf(2)).model[0];
  };
  std::set<double> of_rounds, of_seeds;
  for (uint32_t i = 1; i <= 20; ++i) {
    of_rounds.insert(median(i, 1));
    of_seeds.insert(median(1, i));
    EXPECT_EQ(median(i, 1), median(i, 1));
  }
  EXPECT_GT(of_rounds.size(), 3u);
  EXPECT_GT(of_seeds.size(), 3u);
}

TEST(Bucketing, PutsTheRestIntoASmallerBucket) {
  // Without a cut the trimmed mean is the plain mean of the buckets' means.
  ServerRound all{.updates = {{1}, {2}, {4}, {8}, {16}}};
  const std::vector<size_t> order = OrderOf(all);
  const auto of = [&](size_t i) { return all.updates[order[i]][0]; };
  const double expected = ((of(0) + of(1)) / 2 + (of(2) + of(3)) / 2 + of(4)) / 3;
  EXPECT_NEAR(all.Of("trimmed_mean", InBucketsOf(2, {{"beta", 0.0}})).model[0], expected, 1e-14);
  // Buckets of one are the updates.
  EXPECT_EQ(all.Of("median", InBucketsOf(1)).model, (Numbers{4}));
}

TEST(Bucketing, OfWeightedUpdatesIsWeighted) {
  // The geometric median of one bucket is its mean: Σ α·Δ/Σ α.
  const ServerRound all{.updates = {{1, 0}, {4, 0}, {0, 2}}, .weights = {1, 2, 5}};
  const Numbers mean = {9.0 / 8, 10.0 / 8};
  EXPECT_LT(Distance(all.Of("geometric_median", InBucketsOf(3, {{"weighted", true}})).model, mean),
            1e-14);
  // Of two buckets, one with more weight than the other, it is the heavier one's mean.
  const ServerRound two{.updates = {{0, 0}, {0, 0}, {0, 0}, {9, 9}}, .weights = {1, 1, 1, 10}};
  const std::vector<size_t> order = OrderOf(two);
  const size_t heavy = static_cast<size_t>(std::ranges::find(order, size_t{3}) - order.begin());
  ASSERT_LT(heavy, 4u);
  const Numbers z =
      two.Of("geometric_median", InBucketsOf(2, {{"weighted", true}, {"iterations", int64_t{300}}}))
          .model;
  EXPECT_LT(Distance(z, {90.0 / 11, 90.0 / 11}), 1e-3);
}

std::string Refusal(const std::string& name, const Parameters& parameters, uint64_t cohort,
                    uint64_t enough = 0) {
  auto setup = SetupOfRule(name, parameters, Plain(2, DType::kF32));
  setup.cohort = {.size = cohort};
  setup.clients = 100;
  const Description rule = Builtin(name);
  const absl::Status made = MakeSchema(rule, setup).status();
  return std::string((made.ok() ? CheckNeeded(rule, setup, enough) : made).message());
}

TEST(Bucketing, NeedsEnoughBuckets) {
  EXPECT_EQ(Refusal("krum", InBucketsOf(2), 9), "");  // 5 = 2f+3 buckets
  EXPECT_THAT(Refusal("krum", InBucketsOf(2), 8),
              AllOf(HasSubstr("2f+3 = 5 buckets"), HasSubstr("cohort.size = 8"),
                    HasSubstr("bucket_size = 2")));
  EXPECT_THAT(Refusal("krum", InBucketsOf(2, {{"m", int64_t{5}}}), 10), HasSubstr("use m <= 4"));
  EXPECT_THAT(Refusal("krum", InBucketsOf(2), 20, /*enough=*/8), HasSubstr("9"));
  EXPECT_EQ(Refusal("krum", InBucketsOf(2), 20, /*enough=*/9), "");
  for (const char* name : {"median", "trimmed_mean", "geometric_median", "centered_clipping"}) {
    EXPECT_EQ(Refusal(name, InBucketsOf(4), 5), "") << name;
    EXPECT_THAT(Refusal(name, InBucketsOf(5), 5),
                AllOf(HasSubstr("bucket_size = 5"), HasSubstr("one bucket")))
        << name;
  }
}

TEST(Bucketing, IsCountedInWhatARuleWithstandsAndSays) {
  const auto notes = [](const std::string& name, double fraction, const Parameters& parameters) {
    auto setup = SetupOfRule(name, parameters, Plain(2, DType::kF32));
    setup.cohort = {.size = 20, .weight = WeightPolicy::kUniform};
    return absl::StrJoin(Under(Of("sign-flip", fraction), name, 20).notes(setup), "\n");
  };
  EXPECT_THAT(notes("median", .4, InBucketsOf(2)), HasSubstr("median withstands 4"));
  EXPECT_THAT(notes("geometric_median", .4, InBucketsOf(2)), HasSubstr("withstands 4"));
  EXPECT_THAT(notes("trimmed_mean", .4, InBucketsOf(2, {{"beta", .3}})), HasSubstr("withstands 3"));
  EXPECT_THAT(notes("trimmed_mean", 0, InBucketsOf(4)), HasSubstr("0 of 5 buckets"));
}

// Clients of three kinds, as with skewed labels: the mean of them all is wanted.
std::vector<TestPopulationClient> Kinds(uint64_t clients) {
  const std::vector<Numbers> optima = {{3, 0, 0}, {0, 3, 0}, {0, 0, 3}};
  std::vector<TestPopulationClient> population;
  for (uint64_t k = 0; k < clients; ++k) {
    Numbers optimum = optima[k % 3];
    for (size_t i = 0; i < 3; ++i) optimum[i] += .01 * static_cast<double>(k % 5);
    population.push_back({std::make_shared<SquaredDistance>(optimum), 1});
  }
  return population;
}

// The mean over the last rounds of how far the model is from the honest clients' mean.
double ErrorUnderMimic(const std::string& rule, const Parameters& parameters) {
  constexpr uint64_t kClients = 24;
  const AttackConfig attack = Of("mimic", .17);  // 4 of them
  RoundLoop loop(Under(attack, rule, kClients), Kinds(kClients),
                 {.parameters = parameters,
                  .start = {0, 0, 0},
                  .cohort = {.size = kClients, .weight = WeightPolicy::kUniform}});
  const HostileClients hostile(attack, kClients, kSeed);
  EXPECT_EQ(hostile.count(), 4u);
  Numbers mean(3);
  for (uint64_t k = 0; k < kClients; ++k) {
    if (hostile.Contains(ClientId(k))) continue;
    for (size_t i = 0; i < 3; ++i)
      mean[i] += ((i == k % 3 ? 3 : 0) + .01 * static_cast<double>(k % 5)) / 20;
  }
  double error = 0;
  constexpr int kLast = 30;
  EXPECT_TRUE(loop.Rounds(20).ok());
  for (int i = 0; i < kLast; ++i) {
    EXPECT_TRUE(loop.Rounds(1).ok());
    error += Distance(loop.Model(), mean) / kLast;
  }
  return error;
}

// The paper's claim: where honest clients differ, copies of one of them are enough against a rule
// that chooses among updates, and buckets mend it.
TEST(Bucketing, MendsRulesUnderMimicWhereClientsDiffer) {
  const Parameters krum = {{"f", int64_t{4}}};
  const double alone = ErrorUnderMimic("krum", krum);
  const double mended = ErrorUnderMimic("krum", InBucketsOf(2, krum));
  EXPECT_GT(alone, 1.5) << "Krum takes the side of whom the hostile clients copy";
  EXPECT_LT(mended, 0.6 * alone);
}

}  // namespace
}  // namespace macaw::algorithms
