#include "codecs/spectrum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "codecs/columns.h"

namespace macaw::codecs {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

RandomStream SpectrumStream(uint64_t seed) { return RandomStream({.seed = seed}); }

std::vector<double> Normals(size_t size, uint64_t seed) {
  RandomStream random = SpectrumStream(seed);
  std::vector<double> numbers(size);
  for (double& number : numbers) number = random.Normal();
  return numbers;
}

TEST(Eigenvalues, ByHand) {
  EXPECT_THAT(Eigenvalues({2, 1, 1, 2}, 2),
              ElementsAre(DoubleNear(3, 1e-15), DoubleNear(1, 1e-15)));
  EXPECT_THAT(Eigenvalues({1, 0, 0, 4}, 2), ElementsAre(4, 1));
  // Of [[2, −1, 0], [−1, 2, −1], [0, −1, 2]]: 2 + √2, 2, 2 − √2.
  EXPECT_THAT(Eigenvalues({2, -1, 0, -1, 2, -1, 0, -1, 2}, 3),
              ElementsAre(DoubleNear(2 + std::sqrt(2), 1e-14), DoubleNear(2, 1e-14),
                          DoubleNear(2 - std::sqrt(2), 1e-14)));
  EXPECT_THAT(Eigenvalues({0, 0, 0, 0}, 2), ElementsAre(0, 0));
}

// Their sum is the trace, and that of their squares the norm's.
TEST(Eigenvalues, KeepTraceAndNorm) {
  constexpr uint32_t kRows = 17;
  std::vector<double> a = Normals(size_t{kRows} * kRows, 3);
  for (uint32_t i = 0; i < kRows; ++i) {
    for (uint32_t j = 0; j < i; ++j) a[i * kRows + j] = a[j * kRows + i];
  }
  double trace = 0, squares = 0, sum = 0, sum_of_squares = 0;
  for (uint32_t i = 0; i < kRows; ++i) trace += a[i * kRows + i];
  for (const double value : a) squares += value * value;
  for (const double value : Eigenvalues(a, kRows)) sum += value, sum_of_squares += value * value;
  EXPECT_NEAR(sum, trace, 1e-12);
  EXPECT_NEAR(sum_of_squares, squares, 1e-11);
}

// diag(4, 3, 2, 1, 0, 0) in 6 × 7, rows and columns in another order: 30 in all.
TEST(SquaredErrors, OfADiagonalMatrixByHand) {
  std::vector<float> m(size_t{6} * 7);
  m[0 * 7 + 5] = 2, m[1 * 7 + 0] = -4, m[3 * 7 + 3] = 1, m[5 * 7 + 1] = 3;
  RandomStream random = SpectrumStream(1);
  const std::vector<double> errors = SquaredErrors(m.data(), 6, 7, 5, random);
  const double expected[] = {30, 14, 5, 1, 0, 0};
  ASSERT_EQ(errors.size(), 6u);
  for (size_t r = 0; r < 6; ++r) EXPECT_NEAR(errors[r], expected[r], 1e-9) << r;
}

// The true ones: sums of the eigenvalues of M Mᵀ that a rank leaves out.
std::vector<double> True(const std::vector<double>& m, uint32_t rows, uint64_t columns) {
  std::vector<double> gram(size_t{rows} * rows);
  for (uint32_t i = 0; i < rows; ++i) {
    for (uint32_t j = 0; j < rows; ++j)
      gram[i * rows + j] = std::inner_product(
          m.begin() + i * columns, m.begin() + (i + 1) * columns, m.begin() + j * columns, 0.0);
  }
  std::vector<double> left = Eigenvalues(gram, rows);
  for (size_t r = left.size() - 1; r-- > 0;) left[r] += left[r + 1];
  return left;
}

// Independent numbers have the flattest spectrum, which is the hardest.
TEST(SquaredErrors, OfRandomMatricesAreThoseOfTheirSpectrum) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<uint32_t, uint32_t>>{{9, 11}, {30, 8}, {12, 50}}) {
      std::vector<double> m = Normals(size_t{rows} * columns, seed);
      for (const bool decays : {false, true}) {
        if (decays) {
          for (size_t i = 0; i < m.size(); ++i)
            m[i] *= std::exp2(-static_cast<double>(i / columns));
        }
        const std::vector<double> expected = True(m, rows, columns);
        RandomStream random = SpectrumStream(seed);
        const uint32_t ranks = std::min(rows, columns) / 2;
        const std::vector<double> errors = SquaredErrors(m.data(), rows, columns, ranks, random);
        for (uint32_t r = 0; r <= ranks; ++r) {
          EXPECT_GE(errors[r], expected[r] * (1 - 1e-9)) << rows << ", " << r;
          EXPECT_LE(errors[r], expected[r] * (decays ? 1.001 : 1.05)) << rows << ", " << r;
        }
      }
    }
  }
}

TEST(SquaredErrors, OfAMatrixOfLowRankVanish) {
  Columns left(20, 3), right(15, 3);
  left.values = Normals(60, 1), right.values = Normals(45, 2);
  std::vector<double> m(size_t{20} * 15);
  for (size_t i = 0; i < 20; ++i) {
    for (size_t j = 0; j < 15; ++j) {
      for (uint32_t k = 0; k < 3; ++k) m[i * 15 + j] += left.Column(k)[i] * right.Column(k)[j];
    }
  }
  for (const double scale : {1.0, 1e-90, 1e90}) {
    std::vector<double> scaled = m;
    for (double& value : scaled) value *= scale;
    RandomStream random = SpectrumStream(5);
    const std::vector<double> errors = SquaredErrors(scaled.data(), 20, 15, 8, random);
    EXPECT_GT(errors[2], 1e-3 * errors[0]);
    for (size_t r = 3; r <= 8; ++r) EXPECT_LE(errors[r], 1e-13 * errors[0]) << r;
  }
}

TEST(SquaredErrors, OfEqualStreamsAreEqual) {
  const std::vector<double> m = Normals(size_t{9} * 9, 4);
  RandomStream one = SpectrumStream(1), same = SpectrumStream(1), other = SpectrumStream(2);
  const std::vector<double> errors = SquaredErrors(m.data(), 9, 9, 4, one);
  EXPECT_EQ(SquaredErrors(m.data(), 9, 9, 4, same), errors);
  EXPECT_NE(SquaredErrors(m.data(), 9, 9, 4, other), errors);
}

}  // namespace
}  // namespace macaw::codecs
