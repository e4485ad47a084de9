#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace macaw::codecs {

// A thin matrix in double precision, column after column. Its sums are in a fixed order.
struct Columns {
  Columns(uint64_t length, uint32_t count)
      : rows(length), columns(count), values(length * count, 0.0) {}

  double* Column(uint32_t k) { return values.data() + k * rows; }
  const double* Column(uint32_t k) const { return values.data() + k * rows; }
  std::vector<double> RowMajor() const;

  uint64_t rows;
  uint32_t columns;
  std::vector<double> values;
};

// How many of `most` columns of so many rows each, one after the other, are used: all up to the
// last one that is not zero.
template <typename T>
uint32_t UsedColumns(const T* columns, uint64_t rows, uint32_t most) {
  uint64_t used = most * rows;
  while (used > 0 && columns[used - 1] == T{0}) --used;
  return static_cast<uint32_t>((used + rows - 1) / rows);
}

// Makes the columns orthonormal, in their order (Gram-Schmidt, twice). A column that is zero or not
// finite, or depends on those before it, is drawn from `random`, so it is never NaN and never stays
// zero. At most as many columns as rows.
void Orthonormalise(RandomStream& random, Columns& block);

// A·B of `a`, rows × b.rows, row after row; and Aᵀ·B of `a`, b.rows × columns.
template <typename T>
Columns Product(const T* a, uint64_t rows, const Columns& b);
template <typename T>
Columns TransposedProduct(const T* a, uint64_t columns, const Columns& b);

}  // namespace macaw::codecs
