#include "models/singular_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace macaw::models {
namespace {

constexpr int kMostSweeps = 60;  // about ten are needed
constexpr size_t kChains = 8;  // partial sums of a product, which the processor forms side by side

// Σ a[i]·b[i], in a fixed order.
double DotOf(const double* a, const double* b, size_t count) {
  std::array<double, kChains> sums = {};
  size_t i = 0;
  for (; i + kChains <= count; i += kChains) {
    for (size_t k = 0; k < kChains; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (size_t k = 0; i < count; ++i, ++k) sums[k] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

void Rotate(double cosine, double sine, double* a, double* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double x = a[i], y = b[i];
    a[i] = cosine * x - sine * y;
    b[i] = sine * x + cosine * y;
  }
}

// Vectors of one length, one after another.
struct Vectors {
  size_t count = 0, length = 0;
  std::vector<double> numbers;
  double* At(size_t i) { return numbers.data() + i * length; }
};

double SquareOf(Vectors& vectors, size_t i) {
  return DotOf(vectors.At(i), vectors.At(i), vectors.length);
}

// Makes the vectors orthogonal by rotations in planes, which `rotations` takes part in. Vectors
// with a square of at most `zero` count as 0.
void MakeOrthogonal(Vectors& vectors, Vectors& rotations, double zero) {
  constexpr double kOrthogonal = 4 * std::numeric_limits<double>::epsilon();
  std::vector<double> squares(vectors.count);
  bool rotated = true;
  for (int sweep = 0; sweep < kMostSweeps && rotated; ++sweep) {
    rotated = false;
    for (size_t i = 0; i < vectors.count; ++i) squares[i] = SquareOf(vectors, i);
    for (size_t p = 0; p + 1 < vectors.count; ++p) {
      for (size_t q = p + 1; q < vectors.count; ++q) {
        double &first = squares[p], &second = squares[q];
        if (!(first > zero && second > zero)) continue;
        double* const a = vectors.At(p);
        double* const b = vectors.At(q);
        const double product = DotOf(a, b, vectors.length);
        if (std::abs(product) <= kOrthogonal * std::sqrt(first) * std::sqrt(second)) continue;
        rotated = true;
        // The smaller angle that makes the product 0.
        const double zeta = (second - first) / (2 * product);
        const double tangent =
            (zeta >= 0 ? 1.0 : -1.0) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
        first -= tangent * product;
        second += tangent * product;
        Rotate(cosine, sine, a, b, vectors.length);
        Rotate(cosine, sine, rotations.At(p), rotations.At(q), rotations.length);
      }
    }
  }
}

}  // namespace

SingularValues LargestSingularValues(const std::vector<double>& matrix, uint64_t rows,
                                     uint64_t columns, uint64_t count) {
  // The vectors are rows or columns: M = R·V with orthogonal R, and the rows of V = Rᵀ·M are made
  // orthogonal (or the same of Mᵀ).
  const bool by_rows = rows <= columns;
  Vectors vectors = {.count = by_rows ? rows : columns, .length = by_rows ? columns : rows};
  vectors.numbers.resize(rows * columns);
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j)
      vectors.numbers[by_rows ? i * columns + j : j * rows + i] = matrix[i * columns + j];
  }
  // A power of 2, so that squares neither overflow nor vanish.
  double largest = 0;
  for (const double value : vectors.numbers) largest = std::max(largest, std::abs(value));
  const int exponent = largest > 0 ? std::ilogb(largest) : 0;
  for (double& value : vectors.numbers) value = std::ldexp(value, -exponent);

  Vectors rotations = {.count = vectors.count, .length = vectors.count};
  rotations.numbers.resize(vectors.count * vectors.count, 0.0);
  for (size_t i = 0; i < vectors.count; ++i) rotations.At(i)[i] = 1;
  double all = 0;
  for (size_t i = 0; i < vectors.count; ++i) all += SquareOf(vectors, i);
  const double rounding = std::numeric_limits<double>::epsilon() *
                          static_cast<double>(std::max(vectors.count, vectors.length));
  const double zero_square = rounding * rounding * all;
  MakeOrthogonal(vectors, rotations, zero_square);

  std::vector<double> norms(vectors.count);
  for (size_t i = 0; i < vectors.count; ++i) {
    const double square = SquareOf(vectors, i);
    norms[i] = square > zero_square ? std::sqrt(square) : 0;
  }
  std::vector<size_t> order(vectors.count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return norms[a] > norms[b]; });

  SingularValues result;
  for (uint64_t k = 0; k < count; ++k) {
    const size_t i = order[k];
    const bool zero = !(norms[i] > 0);
    result.values.push_back(std::ldexp(norms[i], exponent));
    std::vector<double>& longer = by_rows ? result.right : result.left;
    std::vector<double>& shorter = by_rows ? result.left : result.right;
    for (size_t j = 0; j < vectors.length; ++j)
      longer.push_back(zero ? 0 : vectors.At(i)[j] / norms[i]);
    for (size_t j = 0; j < rotations.length; ++j) shorter.push_back(zero ? 0 : rotations.At(i)[j]);
  }
  return result;
}

}  // namespace macaw::models
