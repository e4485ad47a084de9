#include "codecs/spectrum.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "codecs/columns.h"

namespace macaw::codecs {
namespace {

// More columns than are asked for: what is just beyond them mixes with the last ones.
constexpr uint64_t kMoreColumns = 4;
constexpr int kSpectrumSteps = 4;
constexpr int kJacobiSweeps = 30;  // some ten are enough for any matrix

// Σ of the squares beside the diagonal, and of all.
struct Squares {
  double beside = 0, all = 0;
};
Squares SquaresOf(const std::vector<double>& a, uint32_t size) {
  Squares squares;
  for (uint32_t i = 0; i < size; ++i) {
    for (uint32_t j = 0; j < size; ++j) {
      const double square = a[i * size + j] * a[i * size + j];
      squares.all += square;
      if (i != j) squares.beside += square;
    }
  }
  return squares;
}

// Makes a[p][q] zero by a rotation of rows and columns p and q.
void TurnPlane(std::vector<double>& a, uint32_t size, uint32_t p, uint32_t q) {
  const double across = a[p * size + q];
  if (across == 0) return;
  const double ratio = (a[q * size + q] - a[p * size + p]) / (2 * across);
  const double tangent = (ratio < 0 ? -1 : 1) / (std::fabs(ratio) + std::sqrt(ratio * ratio + 1));
  const double cosine = 1 / std::sqrt(tangent * tangent + 1), sine = tangent * cosine;
  for (uint32_t k = 0; k < size; ++k) {
    const double left = a[k * size + p], right = a[k * size + q];
    a[k * size + p] = cosine * left - sine * right;
    a[k * size + q] = sine * left + cosine * right;
  }
  for (uint32_t k = 0; k < size; ++k) {
    const double upper = a[p * size + k], lower = a[q * size + k];
    a[p * size + k] = cosine * upper - sine * lower;
    a[q * size + k] = sine * upper + cosine * lower;
  }
}

}  // namespace

std::vector<double> Eigenvalues(std::vector<double> symmetric, uint32_t size) {
  for (int sweep = 0; sweep < kJacobiSweeps; ++sweep) {
    const Squares squares = SquaresOf(symmetric, size);
    if (!(squares.beside > 1e-30 * squares.all)) break;
    for (uint32_t p = 0; p < size; ++p) {
      for (uint32_t q = p + 1; q < size; ++q) TurnPlane(symmetric, size, p, q);
    }
  }
  std::vector<double> values(size);
  for (uint32_t i = 0; i < size; ++i) values[i] = symmetric[i * size + i];
  std::ranges::sort(values, std::greater());
  return values;
}

template <typename T>
std::vector<double> SquaredErrors(const T* m, uint64_t rows, uint64_t columns, uint32_t ranks,
                                  RandomStream& random) {
  double left = 0;
  for (const T value : std::span(m, rows * columns)) left += double{value} * double{value};
  std::vector<double> errors(ranks + 1, left);
  if (!(left > 0) || !std::isfinite(left)) return errors;
  const auto block = static_cast<uint32_t>(std::min({ranks + kMoreColumns, rows, columns}));
  Columns v(columns, block);
  for (double& value : v.values) value = random.Normal();
  for (int i = 0; i < kSpectrumSteps; ++i) {
    Orthonormalise(random, v);
    Columns u = Product(m, rows, v);
    Orthonormalise(random, u);
    v = TransposedProduct(m, columns, u);
  }
  // Uᵀ M Mᵀ U / ‖M‖², so that no square of it is too small.
  std::vector<double> gram(size_t{block} * block);
  for (uint32_t p = 0; p < block; ++p) {
    for (uint32_t q = 0; q < block; ++q) {
      double product = 0;
      for (uint64_t i = 0; i < columns; ++i) product += v.Column(p)[i] * v.Column(q)[i];
      gram[p * block + q] = product / left;
    }
  }
  const std::vector<double> values = Eigenvalues(std::move(gram), block);
  for (uint32_t r = 0; r < ranks; ++r)
    errors[r + 1] = std::fmax(errors[r] - left * std::fmax(values[r], 0), 0);
  return errors;
}

template std::vector<double> SquaredErrors<float>(const float*, uint64_t, uint64_t, uint32_t,
                                                  RandomStream&);
template std::vector<double> SquaredErrors<double>(const double*, uint64_t, uint64_t, uint32_t,
                                                   RandomStream&);

}  // namespace macaw::codecs
