#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/digest.h"

namespace macaw {
namespace {

TEST(RandomStream, DependsOnEveryFieldOfItsName) {
  const StreamKey base{
      .seed = 1, .purpose = Purpose::kShuffle, .round = Round(2), .client = ClientId(3)};
  std::set<uint64_t> firsts;
  for (int field = 0; field < 7; ++field) {
    StreamKey key = base;
    if (field == 1) key.seed = 9;
    if (field == 2) key.purpose = Purpose::kCohort;
    if (field == 3) key.round = Round(9);
    if (field == 4) key.phase = Phase(1);
    if (field == 5) key.client = ClientId(9);
    if (field == 6) key.extra = 1;
    firsts.insert(RandomStream(key).NextU64());
  }
  EXPECT_EQ(firsts.size(), 7u);
}

// The bits are part of every stored result; a change here changes all of them.
TEST(RandomStream, HasTheseBits) {
  RandomStream stream({.seed = 7, .purpose = Purpose::kTest});
  RandomStream again({.seed = 7, .purpose = Purpose::kTest});
  const uint64_t first = stream.NextU64();
  EXPECT_EQ(first, again.NextU64());
  EXPECT_EQ(first, UINT64_C(15976239254344943100));
}

TEST(RandomStream, SkipEqualsDrawing) {
  for (uint64_t skip = 0; skip < 11; ++skip) {
    RandomStream drawn({.seed = 1}), skipped({.seed = 1});
    drawn.NextU32(), skipped.NextU32();
    for (uint64_t i = 0; i < skip; ++i) drawn.NextU32();
    skipped.Skip(skip);
    EXPECT_EQ(drawn.NextU64(), skipped.NextU64()) << skip;
  }
}

// From any position within a block, for lengths around every group size, and with the draws that
// follow.
TEST(RandomStream, BulkEqualsSingleDraws) {
  for (const size_t count : {1, 2, 9, 31, 32, 33, 64, 100, 128, 129, 300}) {
    for (int skip = 0; skip < 9; ++skip) {
      RandomStream one({.seed = 5}), bulk({.seed = 5});
      one.Skip(skip), bulk.Skip(skip);
      std::vector<uint64_t> expected(count), drawn(count);
      for (uint64_t& word : expected) word = one.NextU64();
      bulk.FillU64(drawn);
      ASSERT_EQ(drawn, expected) << count << " after " << skip;
      // A small bound, and one so large that every third draw is repeated.
      for (const uint64_t bound : {UINT64_MAX / 3 * 2, uint64_t{count + 1}}) {
        for (size_t i = 0; i < count; ++i) expected[i] = one.Below(bound - i);
        bulk.FillBelow(bound, drawn);
        ASSERT_EQ(drawn, expected) << count << " after " << skip << " below " << bound;
      }
      ASSERT_EQ(bulk.NextU32(), one.NextU32()) << count << " after " << skip;
    }
  }
}

TEST(RandomStream, ShuffleIsFisherYatesFromTheBack) {
  for (const size_t count : {0, 1, 2, 128, 129, 130, 300}) {
    std::vector<int> shuffled(count);
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::vector<int> expected = shuffled;
    RandomStream stream({.seed = 8}), again({.seed = 8});
    stream.Shuffle(std::span(shuffled));
    for (size_t i = count; i > 1; --i) std::swap(expected[i - 1], expected[again.Below(i)]);
    EXPECT_EQ(shuffled, expected) << count;
    EXPECT_EQ(stream.NextU32(), again.NextU32()) << count;
  }
}

TEST(RandomStream, BelowIsUniform) {
  RandomStream stream({.seed = 3});
  std::vector<int> counts(10);
  for (int i = 0; i < 100000; ++i) ++counts[stream.Below(10)];
  double chi2 = 0;
  for (const int count : counts) chi2 += (count - 1e4) * (count - 1e4) / 1e4;
  EXPECT_LT(chi2, 27.9);  // 9 degrees of freedom, p = 0.001
}

TEST(RandomStream, NormalAndGammaHaveTheirMoments) {
  RandomStream stream({.seed = 4});
  const int n = 200000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.Normal();
    sum += x, squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.02);
  for (const double shape : {0.1, 0.5, 1.0, 4.0}) {
    double mean = 0;
    for (int i = 0; i < n; ++i) mean += stream.Gamma(shape) / n;
    EXPECT_NEAR(mean, shape, 0.02 * std::max(1.0, shape)) << shape;
  }
}

TEST(RandomStream, DirichletIsAPointOfTheSimplexEvenWhenTiny) {
  RandomStream stream({.seed = 5});
  for (const double concentration : {1e-6, 0.1, 1.0, 100.0}) {
    const std::vector<double> p = stream.Dirichlet(concentration, 10);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1.0, 1e-12);
  }
}

TEST(SampleWithoutReplacement, IsUniformOverAHugePopulation) {
  const uint64_t population = 10'000'000, count = 1000, bins = 20;
  std::vector<double> counts(bins);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream stream({.seed = seed, .purpose = Purpose::kCohort});
    const std::vector<uint64_t> chosen = SampleWithoutReplacement(stream, population, count);
    EXPECT_EQ(std::set<uint64_t>(chosen.begin(), chosen.end()).size(), count);
    for (const uint64_t c : chosen) counts[c * bins / population] += 1;
  }
  const double expected = 50.0 * count / bins;
  double chi2 = 0;
  for (const double c : counts) chi2 += (c - expected) * (c - expected) / expected;
  EXPECT_LT(chi2, 43.8);  // 19 degrees of freedom, p = 0.001
}

TEST(SampleWithoutReplacement, OfEverybodyIsAPermutation) {
  RandomStream stream({.seed = 6});
  const std::vector<uint64_t> all = SampleWithoutReplacement(stream, 100, 100);
  EXPECT_EQ(std::set<uint64_t>(all.begin(), all.end()).size(), 100u);
}

TEST(FillNormal, ValueIDependsOnIAlone) {
  std::vector<float> all(300);
  RandomStream({.seed = 6}).FillNormal(all);
  for (const size_t count : {1, 63, 64, 65, 200}) {
    std::vector<float> some(count);
    RandomStream({.seed = 6}).FillNormal(some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << count;
  }
  RandomStream skipped({.seed = 6});
  skipped.Skip(64);  // the words of one group of 64 values
  std::vector<float> rest(236);
  skipped.FillNormal(rest);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), all.begin() + 64));
}

// The bits are part of every stored result, and equal for every instruction set and compiler.
TEST(FillNormal, HasTheseBits) {
  std::vector<float> values(1 << 16);
  RandomStream({.seed = 1}).FillNormal(values);
  EXPECT_EQ(Checksum(BytesOf(std::span(values))), UINT64_C(2728776428762638773));
}

TEST(FillNormal, IsStandardNormal) {
  const size_t n = 1 << 22;
  std::vector<float> values(n);
  RandomStream({.seed = 2}).FillNormal(values);
  double moments[5] = {}, beyond = 0, neighbours = 0, partners = 0;
  for (size_t i = 0; i < n; ++i) {
    const double x = values[i];
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / n;
    beyond += (std::fabs(x) > 1.959964) / static_cast<double>(n);
    if (i > 0) neighbours += x * values[i - 1] / n;
    if (i >= 16) partners += x * values[i - 16] / n;  // the two normals of one Box-Muller pair
  }
  EXPECT_NEAR(moments[1], 0, 0.0025);
  EXPECT_NEAR(moments[2], 1, 0.0035);
  EXPECT_NEAR(moments[3], 0, 0.01);
  EXPECT_NEAR(moments[4], 3, 0.025);
  EXPECT_NEAR(beyond, 0.05, 0.0006);
  EXPECT_NEAR(neighbours, 0, 0.0025);
  EXPECT_NEAR(partners, 0, 0.0025);
}

}  // namespace
}  // namespace macaw
