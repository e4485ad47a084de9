#include "algorithms/symmetric.h"

namespace macaw::algorithms {

void SolveSymmetric(size_t n, size_t m, std::vector<double>& a, std::vector<double>& b) {
  // Rounding leaves a pivot of a dependent variable up to so much of its own diagonal, in whichever
  // unit the variable is.
  std::vector<double> least(n);
  for (size_t i = 0; i < n; ++i) least[i] = a[i * n + i] * static_cast<double>(n) * 0x1p-52;
  std::vector<bool> free(n);
  for (size_t i = 0; i < n; ++i) {  // a[i, j], j > i: L[j, i]·D[i]; then row by row
    free[i] = a[i * n + i] > least[i];
    if (!free[i]) continue;
    for (size_t j = i + 1; j < n; ++j) {
      const double factor = a[i * n + j] / a[i * n + i];
      if (factor == 0) continue;
      for (size_t k = j; k < n; ++k) a[j * n + k] -= factor * a[i * n + k];
      for (size_t k = 0; k < m; ++k) b[j * m + k] -= factor * b[i * m + k];
    }
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = 0; k < m; ++k) {
      double rest = free[i] ? b[i * m + k] : 0;
      for (size_t j = i + 1; free[i] && j < n; ++j) rest -= a[i * n + j] * b[j * m + k];
      b[i * m + k] = free[i] ? rest / a[i * n + i] : 0;
    }
  }
}

}  // namespace macaw::algorithms
