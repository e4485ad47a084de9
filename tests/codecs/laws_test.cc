// What every codec does, whatever its rule.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/codecs/codec_util.h"

namespace macaw::codecs {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A list of lines, and what holds for it.
struct Case {
  std::string name;
  std::vector<std::string> lines;
  // ‖C(v) − v‖² ≤ error · ‖v‖² + what rounding adds, on average over the draws, for d numbers in
  // one tensor.
  double (*error)(double d);
  bool levels = false;  // values are float(step·k), with a step for each piece
};

double Dropped(double fraction, double d) { return 1 - std::floor(fraction * d) / d; }

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"TopK", {"topk 0.125"}, [](double d) { return Dropped(0.125, d); }},
      {"TopKOfAll", {"topk 0.125 all"}, [](double d) { return Dropped(0.125, d); }},
      {"Chunks", {"topk 0.125 chunks 64"}, [](double) { return 1.0; }},
      {"RandomK", {"randomk 0.125"}, [](double d) { return 1 / (1 - Dropped(0.125, d)) - 1; }},
      {"Threshold", {"threshold 0.5"}, [](double) { return 1.0; }},
      // min(n/s², √n/s) of n = 512 numbers a bucket.
      {"Qsgd", {"qsgd 15"}, [](double) { return std::sqrt(512.0) / 15; }, true},
      {"QsgdOfLargeBuckets",
       {"qsgd 64 bucket 1024"},
       [](double) { return std::sqrt(1024.0) / 64; },
       true},
      // Σ |v|(s − |v|) ≤ s·‖v‖₁ − ‖v‖² ≤ (√d − 1)‖v‖².
      {"TernGrad", {"terngrad"}, [](double d) { return std::sqrt(d) - 1; }, true},
      {"TernGradWithAClip", {"terngrad clip 2.5"}, [](double d) { return std::sqrt(d); }, true},
      {"Sign", {"sign"}, [](double d) { return 1 - 1 / d; }, true},
      // A quarter of a step² for each of 512 numbers at most, of which one is 127 or 7 steps.
      {"Bits8", {"bits 8"}, [](double) { return 512 / (4.0 * 127 * 127); }, true},
      {"Bits4", {"bits 4"}, [](double) { return 512 / (4.0 * 7 * 7); }, true},
      {"Bf16", {"bf16"}, [](double) { return 0x1p-16; }},
      {"F16", {"f16"}, [](double) { return 0x1p-22; }},
      {"TopKWithBits", {"topk 0.125", "bits 8"}, [](double d) { return Dropped(0.1249, d); }, true},
      {"SparseTernary", {"topk 0.125", "sign"}, [](double d) { return 1 - 1 / d; }, true},
  };
  return *cases;
}

class EveryCodec : public ::testing::TestWithParam<Case> {
 protected:
  static Doubles Once(const Doubles& values, DType dtype = DType::kF32, uint64_t client = 0) {
    return Coded(GetParam().lines, values, dtype, DrawsOf(client));
  }
};

double Squares(const Doubles& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return sum;
}

// The draws of different clients, and of random-k different rounds.
Doubles Drawn(const Case& one, const Doubles& values, uint64_t draw) {
  return Coded(one.lines, values, DType::kF64, DrawsOf(draw, /*seed=*/draw));
}

TEST_P(EveryCodec, OfTheUnbiasedOnesTheMeanIsTheVectorItself) {
  if (CodecOf(GetParam().lines)->bias() != Bias::kNone) return;
  const Doubles values = SomeNumbers(64);
  double largest = 0;  // error of a draw
  constexpr int kDraws = 4000;
  Doubles sum(values.size()), squares(values.size());
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const Doubles coded = Drawn(GetParam(), values, draw);
    for (size_t i = 0; i < values.size(); ++i) {
      sum[i] += coded[i];
      squares[i] += (coded[i] - values[i]) * (coded[i] - values[i]);
      largest = std::max(largest, std::fabs(coded[i] - values[i]));
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double deviation = std::sqrt(squares[i]) / kDraws;  // of the mean
    // What occurs in one of 400 draws may occur in none of these.
    EXPECT_NEAR(sum[i] / kDraws, values[i], 5 * deviation + largest * 10 / kDraws) << i;
  }
}

TEST_P(EveryCodec, ErrsByNoMoreThanItsBound) {
  for (const size_t d : {8u, 512u, 1536u}) {
    const Doubles values = SomeNumbers(d);
    double error = 0;
    constexpr int kDraws = 50;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const Doubles coded = Drawn(GetParam(), values, draw);
      Doubles rest(d);
      for (size_t i = 0; i < d; ++i) rest[i] = coded[i] - values[i];
      error += Squares(rest) / kDraws;
    }
    // Of a mean of draws, some more.
    const bool random = CodecOf(GetParam().lines)->bias() == Bias::kNone;
    const double room = random ? 1.3 : 1 + 1e-9;
    EXPECT_LE(error, room * GetParam().error(static_cast<double>(d)) * Squares(values)) << d;
  }
}

TEST_P(EveryCodec, LeavesZerosZero) {
  Doubles values = SomeNumbers(700);
  for (size_t i = 0; i < values.size(); i += 3) values[i] = 0;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Doubles coded = Once(values, dtype);
    for (size_t i = 0; i < values.size(); i += 3) EXPECT_EQ(coded[i], 0);
    EXPECT_EQ(Once(Doubles(700), dtype), Doubles(700));
  }
}

TEST_P(EveryCodec, GivesTheSameOnFloatsAndOnDoublesThatAreFloats) {
  // random-k multiplies in the vector's type.
  if (GetParam().name == "RandomK") return;
  const Doubles values = SomeNumbers(1100);
  EXPECT_EQ(Once(values, DType::kF32), Once(values, DType::kF64));
}

TEST_P(EveryCodec, IsAFunctionOfItsDraws) {
  const Doubles values = SomeNumbers(600);
  EXPECT_EQ(Once(values), Once(values));
}

TEST_P(EveryCodec, LeavesBuffersAndGapsAlone) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    FlatVector vector(
        *ParameterLayout::Make({{.name = "w", .shape = {3, 5}},
                                {.name = "b", .shape = {}},
                                {.name = "mean", .shape = {3}, .group = Group::kBuffer}},
                               dtype));
    const ParameterLayout& layout = *vector.layout();
    DispatchDType(dtype, [&]<typename T>(T) {
      RandomStream random({.seed = 5});
      for (const LayoutEntry& entry : layout.entries()) {
        for (T& v : vector.As<T>().subspan(entry.offset, entry.size))
          v = static_cast<T>(random.Normal());
      }
    });
    const FlatVector before = vector.Clone();
    Draws draws = DrawsOf();
    CodecOf(GetParam().lines)->Apply(vector.view(), draws);
    DispatchDType(dtype, [&]<typename T>(T) {
      std::vector<bool> inside(layout.size());
      for (const LayoutEntry& entry : layout.entries()) {
        for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
          inside[i] = true;
          if (entry.group == Group::kBuffer) {
            EXPECT_EQ(vector.As<T>()[i], before.As<T>()[i]);
          }
        }
      }
      for (uint64_t i = 0; i < layout.size(); ++i) {
        if (!inside[i]) {
          EXPECT_EQ(vector.As<T>()[i], 0);
        }
      }
    });
  }
}

TEST_P(EveryCodec, TakesATensorOfOneNumberAndALayoutOfBuffersAlone) {
  const Doubles one = Once({0.75});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_TRUE(std::isfinite(one[0]));
  FlatVector buffers(*ParameterLayout::Make(
      {{.name = "mean", .shape = {4}, .group = Group::kBuffer}}, DType::kF32));
  Draws draws = DrawsOf();
  CodecOf(GetParam().lines)->Apply(buffers.view(), draws);
  EXPECT_EQ(TensorsOf(buffers)[0], Doubles(4));
}

TEST_P(EveryCodec, LeavesSomethingThatIsNotFiniteOfSuchAnInput) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
      for (const size_t place : {0u, 300u, 699u}) {
        Doubles values = SomeNumbers(700);
        values[place] = bad;
        bool found = false;
        for (const double v : Once(values, dtype)) found |= !std::isfinite(v);
        EXPECT_TRUE(found) << bad << " at " << place;
      }
      bool all = false;
      for (const double v : Once(Doubles(20, bad), dtype)) all |= !std::isfinite(v);
      EXPECT_TRUE(all);
    }
  }
}

// What the wire form looks for: a float `step` in each aligned piece, and whole multiples of it.
TEST_P(EveryCodec, OfTheQuantisersGivesMultiplesOfAStep) {
  if (!GetParam().levels) return;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Doubles coded = Once(SomeNumbers(1300), dtype);
    for (size_t begin = 0; begin < coded.size(); begin += kPiece) {
      const Doubles piece(
          coded.begin() + static_cast<ptrdiff_t>(begin),
          coded.begin() + static_cast<ptrdiff_t>(std::min(coded.size(), begin + kPiece)));
      double largest = 0;
      for (const double v : piece) largest = std::max(largest, std::fabs(v));
      if (largest == 0) continue;
      bool fits = false;
      for (int top = 1; top <= 128 && !fits; ++top) {
        // Floats around the quotient, since the product was rounded.
        const auto near = static_cast<float>(largest / top);
        for (const float step : {near, std::nextafter(near, 0.0f), std::nextafter(near, 1e30f)}) {
          bool all = true;
          for (const double v : piece) {
            const double k = std::round(v / static_cast<double>(step));
            all &= static_cast<float>(static_cast<double>(step) * k) == v;
          }
          fits |= all;
        }
      }
      EXPECT_TRUE(fits) << "piece at " << begin;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace macaw::codecs
