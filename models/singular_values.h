#pragma once

#include <cstdint>
#include <vector>

namespace macaw::models {

// The largest singular values of a matrix, with their vectors.
struct SingularValues {
  std::vector<double> values;  // falling
  std::vector<double> left;    // one vector of `rows` numbers after another
  std::vector<double> right;   // one vector of `columns` numbers after another
};

// The `count` largest of a row-major matrix, by one-sided Jacobi rotations (Hestenes 1958; de Rijk
// 1989) of its rows or columns, whichever are fewer: accurate to rounding, and always the same bits
// on one processor. Takes about 50·min(rows, columns)²·max(rows, columns) operations. A value of at
// most max(rows, columns)·2^-52 of the matrix's norm is given as 0, with vectors of zeros. The
// matrix must be finite; count ≤ min(rows, columns).
SingularValues LargestSingularValues(const std::vector<double>& matrix, uint64_t rows,
                                     uint64_t columns, uint64_t count);

}  // namespace macaw::models
