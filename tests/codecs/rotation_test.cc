#include "codecs/rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/codecs/codec_util.h"

namespace macaw::codecs {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr DType kTypes[] = {DType::kF32, DType::kF64};
constexpr size_t kSizes[] = {1, 2, 3, 7, 8, 100, 4095, 4096, 4097, 6000, 8192, 12000};

RandomStream RoundStream(uint64_t round = 1) { return RandomStream({.seed = 9, .extra = round}); }

Doubles Rotated(const Doubles& values, DType dtype = DType::kF64, uint64_t round = 1) {
  FlatVector vector = VectorOf({values}, dtype);
  Rotate(vector.view(), RoundStream(round));
  return TensorsOf(vector)[0];
}

double SquaredNormOf(const Doubles& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return sum;
}

double LargestDifference(const Doubles& a, const Doubles& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

// The header's definition, number by number.
class ByDefinition {
 public:
  explicit ByDefinition(RandomStream random) : random_(random) {}

  void Rotate(Doubles& v) {
    const size_t m = std::min<size_t>(4096, std::bit_floor(v.size()));
    const size_t rest = v.size() % m;
    const Doubles of_rest = rest > 0 ? Signs(m) : Doubles();
    for (size_t at = 0; at + m <= v.size(); at += m) Block(v, at, Signs(m));
    if (rest > 0) Block(v, v.size() - m, of_rest);
  }

 private:
  Doubles Signs(size_t m) {
    const size_t w = std::max<size_t>(1, m / 32);
    std::vector<uint32_t> words;
    while (words.size() < w) {
      const uint64_t drawn = random_.NextU64();
      words.push_back(static_cast<uint32_t>(drawn));
      words.push_back(static_cast<uint32_t>(drawn >> 32));
    }
    Doubles signs;
    for (size_t i = 0; i < m; ++i) signs.push_back((words[i % w] >> (i / w) & 1) == 1 ? -1 : 1);
    return signs;
  }
  static void Block(Doubles& v, size_t at, const Doubles& signs) {
    const size_t m = signs.size();
    Doubles result(m);
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < m; ++j) {
        const double h = std::popcount(i & j) % 2 == 1 ? -1 : 1;
        result[i] += h * signs[j] * v[at + j];
      }
      result[i] /= std::sqrt(static_cast<double>(m));
    }
    std::ranges::copy(result, v.begin() + static_cast<ptrdiff_t>(at));
  }

  RandomStream random_;
};

TEST(Rotation, IsThatOfItsDefinition) {
  for (const size_t size : {1u, 2u, 3u, 7u, 64u, 100u, 2048u, 4096u, 9000u}) {
    std::vector<Doubles> tensors = {SomeNumbers(size), SomeNumbers(5, 2)};
    FlatVector vector = VectorOf(tensors, DType::kF64);
    Rotate(vector.view(), RoundStream());
    ByDefinition expected(RoundStream());
    for (size_t t = 0; t < tensors.size(); ++t) {
      expected.Rotate(tensors[t]);
      EXPECT_LT(LargestDifference(TensorsOf(vector)[t], tensors[t]), 1e-11) << size;
    }
  }
}

TEST(Rotation, OfAFewNumbersByHand) {
  for (const double v : Rotated({0, 3, 0, 0})) EXPECT_DOUBLE_EQ(std::fabs(v), 1.5);
  Doubles pair = Rotated({1, 1});  // (±√2, 0) or (0, ±√2)
  for (double& v : pair) v = std::fabs(v);
  std::ranges::sort(pair);
  EXPECT_EQ(pair[0], 0);
  EXPECT_DOUBLE_EQ(pair[1], std::numbers::sqrt2);
  EXPECT_EQ(std::fabs(Rotated({5})[0]), 5);
}

TEST(Rotation, KeepsTheNorm) {
  for (const DType dtype : kTypes) {
    for (const size_t size : kSizes) {
      const Doubles values = SomeNumbers(size);
      EXPECT_NEAR(std::sqrt(SquaredNormOf(Rotated(values, dtype)) / SquaredNormOf(values)), 1, 1e-6)
          << size;
    }
  }
}

TEST(Rotation, BackIsItsInverse) {
  for (const DType dtype : kTypes) {
    for (const size_t size : kSizes) {
      const std::vector<Doubles> tensors = {SomeNumbers(size), SomeNumbers(33, 2)};
      FlatVector vector = VectorOf(tensors, dtype);
      Rotate(vector.view(), RoundStream());
      EXPECT_NE(TensorsOf(vector), tensors);
      RotateBack(vector.view(), RoundStream());
      const double scale = std::sqrt(SquaredNormOf(tensors[0]));
      for (size_t t = 0; t < tensors.size(); ++t) {
        EXPECT_LT(LargestDifference(TensorsOf(vector)[t], tensors[t]),
                  (dtype == DType::kF32 ? 1e-6 : 1e-14) * std::max(scale, 10.0))
            << size;
      }
    }
  }
}

TEST(Rotation, IsLinear) {
  const Doubles a = SomeNumbers(5000, 1), b = SomeNumbers(5000, 2);
  Doubles sum = a;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  const Doubles of_a = Rotated(a), of_b = Rotated(b);
  Doubles expected = of_a;
  for (size_t i = 0; i < sum.size(); ++i) expected[i] += of_b[i];
  EXPECT_LT(LargestDifference(Rotated(sum), expected), 1e-11);
}

TEST(Rotation, IsAFunctionOfItsStream) {
  const Doubles values = SomeNumbers(5000);
  EXPECT_EQ(Rotated(values), Rotated(values));
  EXPECT_GT(LargestDifference(Rotated(values), Rotated(values, DType::kF64, 2)), 0.1);
  // Blocks of a tensor, and tensors, have signs of their own.
  Doubles twice(8192);
  for (size_t i = 0; i < 4096; ++i) twice[i] = twice[4096 + i] = values[i];
  const Doubles rotated = Rotated(twice);
  EXPECT_NE(Doubles(rotated.begin(), rotated.begin() + 4096),
            Doubles(rotated.begin() + 4096, rotated.end()));
}

TEST(Rotation, SpreadsALargeNumberOverItsBlock) {
  for (const size_t place : {0u, 5000u, 8191u}) {
    Doubles values(8192);
    values[place] = 64e6;
    const Doubles rotated = Rotated(values, DType::kF32);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::fabs(rotated[i]), i / 4096 == place / 4096 ? 1e6 : 0) << i;
  }
  // Of the rest, over the last 4096 numbers.
  Doubles values(4100);
  values[4099] = 64;
  const Doubles rotated = Rotated(values);
  EXPECT_THAT(Doubles(rotated.begin(), rotated.begin() + 4), Each(0));
  for (size_t i = 4; i < 4100; ++i) EXPECT_DOUBLE_EQ(std::fabs(rotated[i]), 1);
}

TEST(Rotation, LeavesBuffersAndGapsAlone) {
  for (const DType dtype : kTypes) {
    FlatVector vector(
        *ParameterLayout::Make({{.name = "w", .shape = {3, 5}},
                                {.name = "b", .shape = {}},
                                {.name = "mean", .shape = {4}, .group = Group::kBuffer}},
                               dtype));
    const ParameterLayout& layout = *vector.layout();
    DispatchDType(dtype, [&]<typename T>(T) {
      for (const LayoutEntry& entry : layout.entries())
        for (T& v : vector.As<T>().subspan(entry.offset, entry.size)) v = 2;
      for (const bool back : {false, true}) {
        back ? RotateBack(vector.view(), RoundStream()) : Rotate(vector.view(), RoundStream());
        std::vector<bool> inside(layout.size());
        for (const LayoutEntry& entry : layout.entries()) {
          for (uint64_t i = entry.offset; i < entry.offset + entry.size; ++i) {
            inside[i] = true;
            if (entry.group == Group::kBuffer) {
              EXPECT_EQ(vector.As<T>()[i], 2);
            }
          }
        }
        for (uint64_t i = 0; i < layout.size(); ++i)
          EXPECT_TRUE(inside[i] || vector.As<T>()[i] == 0);
      }
    });
  }
}

TEST(Rotation, LeavesSomethingThatIsNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kTypes) {
    for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
      for (const size_t place : {0u, 4500u, 4999u}) {
        Doubles values = SomeNumbers(5000);
        values[place] = bad;
        bool found = false;
        for (const double v : Rotated(values, dtype)) found |= !std::isfinite(v);
        EXPECT_TRUE(found) << bad << " at " << place;
      }
    }
  }
}

TEST(Rotation, KnowsHowLargeANumberMayBecome) {
  const auto mixed = [](size_t size) {
    return MostMixed(*VectorOf({Doubles(size), Doubles(1)}).layout());
  };
  EXPECT_EQ(mixed(1), 1u);
  EXPECT_EQ(mixed(4), 4u);
  EXPECT_EQ(mixed(7), 7u);
  EXPECT_EQ(mixed(4096 * 3), 4096u);
  EXPECT_EQ(mixed(4096 * 3 + 10), 4106u);
  // Reached: Rᵀ of one number, made as large as the bound lets it.
  for (const size_t size : {8u, 100u, 5000u}) {
    FlatVector one = VectorOf({Doubles(size)}, DType::kF64);
    one.As<double>()[size - 1] = 1;
    RotateBack(one.view(), RoundStream());
    Doubles worst = TensorsOf(one)[0];
    for (double& v : worst) v = v < 0 ? -1 : 1;
    double largest = 0;
    for (const double v : Rotated(worst)) largest = std::max(largest, std::fabs(v));
    EXPECT_LE(largest, std::sqrt(static_cast<double>(mixed(size))) + 1e-9);
    EXPECT_GT(largest, 0.5 * std::sqrt(static_cast<double>(mixed(size))));
  }
}

// ---- With a codec behind it

// Rᵀ C(R v), of a draw.
Doubles Decoded(const char* line, const Doubles& values, uint64_t draw) {
  FlatVector vector = VectorOf({values}, DType::kF64);
  Draws draws = DrawsOf(draw, draw);
  Rotate(vector.view(), RoundStream(draw));
  CodecOf({line}, {.rotated = true})->Apply(vector.view(), draws);
  RotateBack(vector.view(), RoundStream(draw));
  return TensorsOf(vector)[0];
}

// ‖C'(v) − v‖²/‖v‖², the mean over draws.
template <typename F>
double ErrorOf(const Doubles& values, F&& decode) {
  constexpr int kDraws = 20;
  double error = 0;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    Doubles rest = decode(draw);
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= values[i];
    error += SquaredNormOf(rest) / kDraws;
  }
  return error / SquaredNormOf(values);
}

TEST(Rotation, BeforeAnUnbiasedCodecTheMeanIsTheVectorItself) {
  for (const char* line : {"bits 2", "terngrad", "randomk 0.5"}) {
    const Doubles values = SomeNumbers(48);
    constexpr int kDraws = 4000;
    Doubles sum(values.size()), squares(values.size());
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const Doubles decoded = Decoded(line, values, draw);
      for (size_t i = 0; i < values.size(); ++i) {
        sum[i] += decoded[i];
        squares[i] += (decoded[i] - values[i]) * (decoded[i] - values[i]);
      }
    }
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(sum[i] / kDraws, values[i], 5 * std::sqrt(squares[i]) / kDraws) << line << i;
  }
}

// DRIVE: the mean over rotations is the vector, also of a block that is small beside another one.
// With the scale of the least error it is 2/π of the vector. Each draw errs by π/2 − 1 of ‖v‖².
TEST(Rotation, TheScaleOfSquaresMakesSignsUnbiased) {
  constexpr int kMany = 200;
  for (const size_t size : {256u, 4096u, 8192u}) {
    RandomStream random({.seed = 5});
    Doubles values(size);
    for (size_t i = 0; i < size; ++i) values[i] = random.Normal() * (i < 4096 ? 1 : 0.01);
    const auto mean_of = [&](const char* line) {
      Doubles mean(size);
      for (uint64_t draw = 0; draw < kMany; ++draw) {
        const Doubles decoded = Decoded(line, values, draw);
        for (size_t i = 0; i < size; ++i) mean[i] += decoded[i] / kMany;
      }
      return mean;
    };
    // ‖mean − factor · v‖/‖v‖ of the numbers from `begin` on.
    const auto apart = [&](const Doubles& mean, double factor, size_t begin) {
      Doubles rest, of;
      for (size_t i = begin; i < std::min(begin + 4096, size); ++i) {
        rest.push_back(mean[i] - factor * values[i]);
        of.push_back(values[i]);
      }
      return std::sqrt(SquaredNormOf(rest) / SquaredNormOf(of));
    };
    const double pi = std::numbers::pi, noise = std::sqrt((pi / 2 - 1) / kMany);
    const Doubles unbiased = mean_of("sign unbiased"), least = mean_of("sign");
    EXPECT_LT(apart(unbiased, 1, 0), 1.15 * noise) << size;
    EXPECT_GT(apart(unbiased, 1, 0), 0.85 * noise) << size;
    if (size > 4096) {
      EXPECT_LT(apart(unbiased, 1, 4096), 1.15 * noise);
    }
    EXPECT_GT(apart(least, 1, 0), 0.3) << size;
    if (size <= 4096) {
      EXPECT_LT(apart(least, 2 / pi, 0), 1.15 * noise) << size;
    }
    const double error =
        ErrorOf(values, [&](uint64_t draw) { return Decoded("sign unbiased", values, draw); });
    EXPECT_NEAR(error, pi / 2 - 1, 0.02) << size;
  }
}

// What makes it so, of any vector.
TEST(Rotation, SignsWithTheScaleOfSquaresKeepTheProductWithTheirVector) {
  for (const size_t size : {64u, 100u, 512u, 1300u}) {
    const Doubles values = SomeNumbers(size);
    const Doubles coded =
        Coded({"sign unbiased"}, values, DType::kF64, DrawsOf(), {.rotated = true});
    double product = 0;
    for (size_t i = 0; i < size; ++i) product += values[i] * coded[i];
    EXPECT_NEAR(product / SquaredNormOf(values), 1, 1e-6) << size;
  }
}

// Numbers of size one, and one that is as large as all others together or larger: the error of a
// plain quantiser is up to √d − 1, that of a rotated one has a bound that knows no numbers.
TEST(Rotation, MakesAnErrorThatDoesNotDependOnLargeNumbers) {
  Doubles values;
  for (size_t i = 0; i < 8192; ++i) values.push_back(i % 3 == 0 ? 1 : -1);
  const double d = static_cast<double>(values.size());
  // Of normal numbers: E|z|·s − 1 with the largest s ≤ √(2 ln 2d).
  const double tern = std::sqrt(2 / std::numbers::pi) * std::sqrt(2 * std::log(2 * d)) - 1;
  for (const double large : {1.0, 30.0, 90.0, 1e3, 1e8}) {
    values[5000] = large;
    const auto error = [&](const char* line) {
      return ErrorOf(values, [&](uint64_t draw) { return Decoded(line, values, draw); });
    };
    // The other block is as small as it was, so twice the bound of one of them.
    EXPECT_LT(error("terngrad"), 2 * tern) << large;
    EXPECT_LT(error("bits 4"), 4.0 / (7 * 7)) << large;
    EXPECT_LT(error("sign"), 0.6) << large;
  }
  values[5000] = 90;
  const double plain = ErrorOf(values, [&](uint64_t draw) {
    return Coded({"terngrad"}, values, DType::kF64, DrawsOf(draw, draw));
  });
  EXPECT_GT(plain, 40);
}

TEST(Rotation, IsTheFirstLine) {
  std::vector<std::string> lines = {"rotate", "bits 4"};
  EXPECT_TRUE(*TakeRotation(lines));
  EXPECT_THAT(lines, testing::ElementsAre("bits 4"));
  EXPECT_FALSE(*TakeRotation(lines));
  EXPECT_THAT(lines, testing::ElementsAre("bits 4"));
  const auto refusal = [](std::vector<std::string> wrong) {
    const absl::StatusOr<bool> taken = TakeRotation(wrong);
    if (!taken.ok()) return std::string(taken.status().message());
    return std::string(ParseCodec(wrong).status().message());
  };
  EXPECT_THAT(refusal({"rotate"}), HasSubstr("bits 4"));
  EXPECT_THAT(refusal({"rotate 4096", "sign"}), HasSubstr("'4096'"));
  EXPECT_THAT(refusal({"sign", "rotate"}), HasSubstr("first"));
  EXPECT_THAT(refusal({"rotate", "rotate", "sign"}), HasSubstr("once"));
  EXPECT_THAT(refusal({"rotat", "sign"}), HasSubstr("did you mean 'rotate'"));
}

}  // namespace
}  // namespace macaw::codecs
