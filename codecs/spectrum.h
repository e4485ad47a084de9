#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace macaw::codecs {

// The squared errors of the best approximations of M (rows × columns, row after row) of the ranks
// 0 … `ranks`: ‖M‖² less the largest squared singular values. `ranks` is less than rows and
// columns.
//
// Four orthogonal iterations of four columns more, which start from `random`, and the eigenvalues
// of what they end with (Rayleigh-Ritz). So an error is never less than the true one, but for
// roundings. Of independent numbers, the worst case, it is some percent more. Moves `random` on.
// All are NaN or infinite if a number of M is not finite. T: float or double.
template <typename T>
std::vector<double> SquaredErrors(const T* m, uint64_t rows, uint64_t columns, uint32_t ranks,
                                  RandomStream& random);

// The eigenvalues of a symmetric matrix of `size` rows, largest first (Jacobi's rotations, in a
// fixed order).
std::vector<double> Eigenvalues(std::vector<double> symmetric, uint32_t size);

}  // namespace macaw::codecs
