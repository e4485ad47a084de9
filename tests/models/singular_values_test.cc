#include "models/singular_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace macaw::models {
namespace {

std::vector<double> Draw(uint64_t count, uint64_t seed) {
  std::vector<double> numbers(count);
  RandomStream stream({.seed = seed});
  for (double& value : numbers) value = stream.Normal();
  return numbers;
}

// The first `rank` parts of the matrix, σ·u·vᵀ each.
std::vector<double> SumOf(const SingularValues& found, uint64_t rows, uint64_t columns) {
  std::vector<double> sum(rows * columns);
  for (size_t k = 0; k < found.values.size(); ++k) {
    for (uint64_t i = 0; i < rows; ++i) {
      for (uint64_t j = 0; j < columns; ++j)
        sum[i * columns + j] +=
            found.values[k] * found.left[k * rows + i] * found.right[k * columns + j];
    }
  }
  return sum;
}

double ProductOf(const std::vector<double>& vectors, size_t length, size_t k, size_t l) {
  double sum = 0;
  for (size_t i = 0; i < length; ++i) sum += vectors[k * length + i] * vectors[l * length + i];
  return sum;
}

TEST(LargestSingularValues, MakeTheMatrixOfOrthonormalVectors) {
  for (const auto& [rows, columns] : std::vector<std::pair<uint64_t, uint64_t>>{
           {1, 1}, {1, 7}, {7, 1}, {5, 3}, {3, 5}, {16, 16}, {40, 23}, {23, 61}}) {
    const std::vector<double> matrix = Draw(rows * columns, rows * 100 + columns);
    const uint64_t count = std::min(rows, columns);
    const SingularValues found = LargestSingularValues(matrix, rows, columns, count);
    const std::vector<double> sum = SumOf(found, rows, columns);
    for (size_t i = 0; i < matrix.size(); ++i) ASSERT_NEAR(sum[i], matrix[i], 1e-13);
    for (size_t k = 0; k < count; ++k) {
      EXPECT_LE(found.values[k], found.values[k > 0 ? k - 1 : 0]);
      for (size_t l = 0; l <= k; ++l) {
        EXPECT_NEAR(ProductOf(found.left, rows, k, l), k == l ? 1 : 0, 1e-13);
        EXPECT_NEAR(ProductOf(found.right, columns, k, l), k == l ? 1 : 0, 1e-13);
      }
    }
    // Fewer are the first of them.
    const SingularValues first = LargestSingularValues(matrix, rows, columns, 1);
    EXPECT_EQ(first.values[0], found.values[0]);
  }
}

TEST(LargestSingularValues, AreAccurateWhereTheyAreFarApart) {
  // Hilbert's matrix of 6: its values fall to 1e-7 of the first one (they are known to all digits).
  const uint64_t n = 6;
  std::vector<double> hilbert;
  for (uint64_t i = 0; i < n; ++i) {
    for (uint64_t j = 0; j < n; ++j) hilbert.push_back(1.0 / static_cast<double>(i + j + 1));
  }
  const SingularValues found = LargestSingularValues(hilbert, n, n, n);
  EXPECT_NEAR(found.values[0], 1.6188998589243391, 1e-14);
  EXPECT_NEAR(found.values[5] / 1.0827994845655498e-07, 1, 1e-8);
}

TEST(LargestSingularValues, OfAMatrixOfLowRankAreZeroBeyondIt) {
  const std::vector<double> u = Draw(12 * 2, 1), v = Draw(2 * 9, 2);
  std::vector<double> matrix(12 * 9);
  for (size_t i = 0; i < 12; ++i) {
    for (size_t j = 0; j < 9; ++j) matrix[i * 9 + j] = u[2 * i] * v[j] + u[2 * i + 1] * v[9 + j];
  }
  const SingularValues found = LargestSingularValues(matrix, 12, 9, 4);
  EXPECT_GT(found.values[1], 0);
  EXPECT_THAT(std::vector<double>(found.values.begin() + 2, found.values.end()),
              testing::Each(0.0));
  const std::vector<double> sum = SumOf(found, 12, 9);
  for (size_t i = 0; i < matrix.size(); ++i) EXPECT_NEAR(sum[i], matrix[i], 1e-13);
  EXPECT_THAT(LargestSingularValues(std::vector<double>(6), 2, 3, 2).values, testing::Each(0.0));
}

TEST(LargestSingularValues, ScaleWithTheMatrix) {
  std::vector<double> matrix = Draw(20, 5);
  const SingularValues found = LargestSingularValues(matrix, 4, 5, 3);
  for (const int exponent : {-900, 900}) {
    std::vector<double> scaled = matrix;
    for (double& value : scaled) value = std::ldexp(value, exponent);
    const SingularValues other = LargestSingularValues(scaled, 4, 5, 3);
    EXPECT_EQ(other.left, found.left);
    EXPECT_EQ(other.right, found.right);
    for (size_t k = 0; k < 3; ++k)
      EXPECT_EQ(other.values[k], std::ldexp(found.values[k], exponent));
  }
}

}  // namespace
}  // namespace macaw::models
