// What each codec makes of a few numbers, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/codecs/codec_util.h"

namespace macaw::codecs {
namespace {

using testing::ElementsAre;

constexpr DType kBoth[] = {DType::kF32, DType::kF64};

TEST(TopK, KeepsTheLargestAndOfEqualOnesTheFirst) {
  for (const DType dtype : kBoth) {
    EXPECT_THAT(Coded({"topk 0.4"}, {1, -5, 2, 3, -0.5}, dtype), ElementsAre(0, -5, 0, 3, 0));
    EXPECT_THAT(Coded({"topk 0.5"}, {2, -2, 2, 2}, dtype), ElementsAre(2, -2, 0, 0));
    EXPECT_THAT(Coded({"topk 0.75"}, {0, 0, 1, 0}, dtype), ElementsAre(0, 0, 1, 0));
  }
}

// k = ⌊F·d⌋ of the decimal that is written: 0.29 · 100 is 29, though not in binary.
TEST(TopK, RoundsDownAndKeepsAtLeastOne) {
  const auto kept = [](const char* line, size_t d) {
    size_t count = 0;
    for (const double v : Coded({line}, SomeNumbers(d))) count += v != 0 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(kept("topk 0.29", 100), 29u);
  EXPECT_EQ(kept("topk 0.299", 100), 29u);
  EXPECT_EQ(kept("topk 0.001", 100), 1u);
  EXPECT_EQ(kept("topk 0.5", 1), 1u);
  EXPECT_EQ(kept("topk 1", 7), 7u);
}

TEST(TopK, IsOfEachTensorOrOfAll) {
  const auto coded = [](const char* line) {
    FlatVector vector = VectorOf({{1, 2, 3, 4}, {10, 20}});
    Draws draws = DrawsOf();
    CodecOf({line})->Apply(vector.view(), draws);
    return TensorsOf(vector);
  };
  EXPECT_THAT(coded("topk 0.5"), ElementsAre(Doubles{0, 0, 3, 4}, Doubles{0, 20}));
  EXPECT_THAT(coded("topk 0.5 tensor"), ElementsAre(Doubles{0, 0, 3, 4}, Doubles{0, 20}));
  EXPECT_THAT(coded("topk 0.5 all"), ElementsAre(Doubles{0, 0, 0, 4}, Doubles{10, 20}));
}

// Chunks of three, which no tensor shares with another: |1 1 1| |4 −4| and |2|: two of three stay.
TEST(TopK, KeepsWholeChunksOfTheLargestNorms) {
  FlatVector vector = VectorOf({{1, 1, 1, 4, -4}, {2}});
  Draws draws = DrawsOf();
  CodecOf({"topk 0.67 chunks 3"})->Apply(vector.view(), draws);
  EXPECT_THAT(TensorsOf(vector), ElementsAre(Doubles{1, 1, 1, 4, -4}, Doubles{0}));
  CodecOf({"topk 0.5 chunks 3"})->Apply(vector.view(), draws);
  EXPECT_THAT(TensorsOf(vector), ElementsAre(Doubles{0, 0, 0, 4, -4}, Doubles{0}));
}

TEST(RandomK, KeepsTheSameIndicesForAllClientsOfARound) {
  const Doubles ones(100, 1.0), twos(100, 2.0);
  const Doubles one = Coded({"randomk 0.25"}, ones, DType::kF32, DrawsOf(1));
  const Doubles other = Coded({"randomk 0.25"}, twos, DType::kF64, DrawsOf(2));
  size_t kept = 0;
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(2 * one[i], other[i]);
    EXPECT_TRUE(one[i] == 0 || one[i] == 4) << "d/k";
    kept += one[i] != 0 ? 1 : 0;
  }
  EXPECT_EQ(kept, 25u);
  EXPECT_NE(Coded({"randomk 0.25"}, ones, DType::kF32, DrawsOf(1, /*seed=*/2)), one);
}

TEST(RandomK, IsNotScaledWhereItsErrorIsFedBack) {
  for (const double v :
       Coded({"randomk 0.25"}, Doubles(8, 3.0), DType::kF32, DrawsOf(), {.scaled = false}))
    EXPECT_TRUE(v == 0 || v == 3);
}

TEST(Threshold, KeepsWhatIsAtLeastAsLarge) {
  EXPECT_THAT(Coded({"threshold 0.5"}, {0.5, -0.49, -0.5, 3, 0}), ElementsAre(0.5, 0, -0.5, 3, 0));
}

// ‖(3, 4)‖ = 5: with s = 5 the levels are 3 and 4 of a step of 1, which are hit exactly.
TEST(Qsgd, HasLevelsOfTheNormOfItsBucket) {
  for (const DType dtype : kBoth) {
    EXPECT_THAT(Coded({"qsgd 5"}, {3, -4}, dtype), ElementsAre(3, -4));
    EXPECT_THAT(Coded({"qsgd 10"}, {3, -4, 0}, dtype), ElementsAre(3, -4, 0));
  }
  // One level: zero or ±5.
  for (const double v : Coded({"qsgd 1"}, {3, -4})) EXPECT_TRUE(v == 0 || std::fabs(v) == 5) << v;
  // The second bucket is zero and stays zero.
  Doubles values(1024);
  values[0] = 7;
  EXPECT_EQ(Coded({"qsgd 7"}, values), values);
}

TEST(Qsgd, TakesALargerBucket) {
  Doubles values(1024);
  values[0] = 3;
  values[1000] = 4;
  EXPECT_EQ(Coded({"qsgd 5 bucket 1024"}, values), values) << "a step of 1";
  EXPECT_EQ(Coded({"qsgd 1"}, values), values) << "each alone in its bucket";
}

TEST(TernGrad, IsZeroOrTheLargestOfItsTensor) {
  const Doubles coded = Coded({"terngrad"}, {1, -8, 2, 0, -4, 8});
  EXPECT_EQ(coded[1], -8);
  EXPECT_EQ(coded[5], 8);
  EXPECT_EQ(coded[3], 0);
  for (const double v : coded) EXPECT_TRUE(v == 0 || std::fabs(v) == 8) << v;
}

// Mean 2, deviation 4 of (0, 0, 0, 0, 10): the clip of 1.5 deviations is 6.
TEST(TernGrad, ClipsAtItsDeviations) {
  EXPECT_THAT(Coded({"terngrad clip 1.5"}, {0, 0, 0, 0, 10}), ElementsAre(0, 0, 0, 0, 6));
  EXPECT_THAT(Coded({"terngrad clip 9"}, {0, 0, 0, 0, 10}), ElementsAre(0, 0, 0, 0, 10));
  EXPECT_THAT(Coded({"terngrad clip 2"}, {0, 0}), ElementsAre(0, 0));
}

TEST(Sign, IsTheMeanSizeOfWhatIsNotZero) {
  for (const DType dtype : kBoth) {
    EXPECT_THAT(Coded({"sign"}, {1, -3, 0, 5}, dtype), ElementsAre(3, -3, 0, 3));
    EXPECT_THAT(Coded({"sign"}, {0, -0.0}, dtype), ElementsAre(0, 0));
  }
  // Sparse ternary compression.
  EXPECT_THAT(Coded({"topk 0.5", "sign"}, {1, -3, 0.5, 5}), ElementsAre(0, -4, 0, 4));
}

TEST(Sign, IsUnbiasedWithTheScaleOfSquares) {
  const auto coded = [](const Doubles& values, DType dtype) {
    return Coded({"sign unbiased"}, values, dtype, DrawsOf(), {.rotated = true});
  };
  for (const DType dtype : kBoth) {
    Doubles values(64, 1.0), expected(64, 1.25);
    values[0] = -5;  // ‖v‖² = 25 + 55, ‖v‖₁ = 5 + 55
    expected[0] = -1.25;
    for (size_t i = 56; i < 64; ++i) values[i] = expected[i] = 0;
    values[56] = 4;  // and 16, and 4
    for (size_t i = 0; i < 57; ++i) expected[i] = values[i] < 0 ? -1.5 : 1.5;
    EXPECT_EQ(coded(values, dtype), expected);
    // Each 512 numbers have their own scale.
    values.assign(1000, 2.0);
    std::fill(values.begin() + 512, values.end(), -7.0);
    EXPECT_EQ(coded(values, dtype), values);
    // So few numbers stay.
    EXPECT_THAT(coded({1, -3, 0}, dtype), ElementsAre(1, -3, 0));
    EXPECT_THAT(coded(Doubles(80), dtype), testing::Each(0));
  }
}

TEST(Bits, RoundsToWholeLevelsOfTheLargest) {
  // 4 bits: 7 levels on each side.
  EXPECT_THAT(Coded({"bits 4"}, {7, -3, 0, 1}), ElementsAre(7, -3, 0, 1));
  EXPECT_THAT(Coded({"bits 8"}, {127, -100, 0}), ElementsAre(127, -100, 0));
  for (const double v : Coded({"bits 2"}, {2, -1, 0.5})) EXPECT_TRUE(v == 0 || std::fabs(v) == 2);
  // A piece of 512 has a step of its own.
  Doubles values(513, 1.0);
  values[512] = 1e-6;
  EXPECT_EQ(Coded({"bits 2"}, values)[512], static_cast<float>(1e-6));
}

TEST(Half, F16RoundsToNearestEvenAndStopsAtItsLargest) {
  for (const DType dtype : kBoth) {
    EXPECT_THAT(
        Coded({"f16"}, {1, 1 + 0x1p-11, 1 + 0x1.8p-10, 1 + 0x1.2p-11, 65504, 65519, 1e30}, dtype),
        ElementsAre(1, 1, 1 + 0x1p-9, 1 + 0x1p-10, 65504, 65504, 65504));
    EXPECT_THAT(Coded({"f16"}, {-1 - 0x1p-11, -7e4, 0x1p-24, 0x1p-25, 0x1.8p-25, -0x1p-26}, dtype),
                ElementsAre(-1, -65504, 0x1p-24, 0, 0x1p-24, 0));
  }
}

TEST(Half, Bf16IsTheUpperHalfOfAFloat) {
  for (const DType dtype : kBoth) {
    EXPECT_THAT(
        Coded({"bf16"}, {1, 1 + 0x1p-8, 1 + 0x1.8p-7, -1 - 0x1.2p-8, 0x1p-133, 0x1p-135}, dtype),
        ElementsAre(1, 1, 1 + 0x1p-6, -1 - 0x1p-7, 0x1p-133, 0));
  }
  EXPECT_THAT(Coded({"bf16"}, {3.4e38}), ElementsAre(0x1.FEp127));
}

TEST(Levels, ReachTheSmallestNumbersWithoutANan) {
  const double tiny = std::numeric_limits<float>::denorm_min();
  for (const char* line : {"qsgd 4", "terngrad", "bits 8", "sign"}) {
    for (const double v : Coded({line}, {tiny, -tiny, 0})) EXPECT_TRUE(std::isfinite(v)) << line;
    // A double far below float's range, alone and beside another.
    for (const double v : Coded({line}, {1e-300, 0}, DType::kF64))
      EXPECT_TRUE(std::isfinite(v)) << line;
  }
}

}  // namespace
}  // namespace macaw::codecs
