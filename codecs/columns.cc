#include "codecs/columns.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace macaw::codecs {
namespace {

// What is left of a column, beside what it was, for it to count as a direction of its own.
constexpr double kDependent = 1e-6;

double ColumnNorm(std::span<const double> column) {
  double squares = 0;
  for (const double value : column) squares += value * value;
  return std::sqrt(squares);
}

// Takes the components along the first `done` columns out of the column, twice.
void MakeOrthogonal(const Columns& block, uint32_t done, std::span<double> column) {
  for (int pass = 0; pass < 2; ++pass) {
    for (uint32_t k = 0; k < done; ++k) {
      const double* const other = block.Column(k);
      double product = 0;
      for (size_t i = 0; i < column.size(); ++i) product += other[i] * column[i];
      for (size_t i = 0; i < column.size(); ++i) column[i] -= product * other[i];
    }
  }
}

}  // namespace

std::vector<double> Columns::RowMajor() const {
  std::vector<double> by_row(values.size());
  for (uint32_t k = 0; k < columns; ++k) {
    for (uint64_t i = 0; i < rows; ++i) by_row[i * columns + k] = Column(k)[i];
  }
  return by_row;
}

void Orthonormalise(RandomStream& random, Columns& block) {
  for (uint32_t k = 0; k < block.columns; ++k) {
    const std::span<double> column(block.Column(k), block.rows);
    double before = ColumnNorm(column);
    MakeOrthogonal(block, k, column);
    double norm = ColumnNorm(column);
    while (!(norm > kDependent * before) || !(norm > 0)) {  // a draw is soon left
      for (double& value : column) value = random.Normal();
      before = ColumnNorm(column);
      MakeOrthogonal(block, k, column);
      norm = ColumnNorm(column);
    }
    for (double& value : column) value /= norm;
  }
}

template <typename T>
Columns Product(const T* a, uint64_t rows, const Columns& b) {
  const std::vector<double> factors = b.RowMajor();
  Columns out(rows, b.columns);
  std::vector<double> sum(b.columns);
  for (uint64_t i = 0; i < rows; ++i) {
    std::ranges::fill(sum, 0.0);
    for (uint64_t j = 0; j < b.rows; ++j) {
      const double value = a[i * b.rows + j];
      for (uint32_t k = 0; k < b.columns; ++k) sum[k] += value * factors[j * b.columns + k];
    }
    for (uint32_t k = 0; k < b.columns; ++k) out.Column(k)[i] = sum[k];
  }
  return out;
}

template <typename T>
Columns TransposedProduct(const T* a, uint64_t columns, const Columns& b) {
  const std::vector<double> factors = b.RowMajor();
  std::vector<double> sum(columns * b.columns, 0.0);
  for (uint64_t i = 0; i < b.rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      const double value = a[i * columns + j];
      for (uint32_t k = 0; k < b.columns; ++k)
        sum[j * b.columns + k] += value * factors[i * b.columns + k];
    }
  }
  Columns out(columns, b.columns);
  for (uint64_t j = 0; j < columns; ++j) {
    for (uint32_t k = 0; k < b.columns; ++k) out.Column(k)[j] = sum[j * b.columns + k];
  }
  return out;
}

template Columns Product<float>(const float*, uint64_t, const Columns&);
template Columns Product<double>(const double*, uint64_t, const Columns&);
template Columns TransposedProduct<float>(const float*, uint64_t, const Columns&);
template Columns TransposedProduct<double>(const double*, uint64_t, const Columns&);

}  // namespace macaw::codecs
