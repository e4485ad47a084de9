#pragma once

#include <cstddef>
#include <vector>

namespace macaw::algorithms {

// A·X = B for a symmetric positive semidefinite A [n, n], of which the upper triangle is given, and
// B [n, m], which becomes X; by the factors LDLᵀ, in place. A variable that depends on those before
// it becomes 0: one of which less than n·2⁻⁵² of its own diagonal is left. So the
// unit of a variable does not matter: with row and column i of A and row i of B times c, row i of X
// is divided by c.
void SolveSymmetric(size_t n, size_t m, std::vector<double>& a, std::vector<double>& b);

}  // namespace macaw::algorithms
