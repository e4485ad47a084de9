#include "codecs/rank_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace macaw::codecs {
namespace {

constexpr uint32_t kErrorCells = 10'000;
constexpr uint64_t kImpossible = std::numeric_limits<uint64_t>::max();

// More than there are, where the limit does not allow the error.
uint32_t CellsOf(double error, double limit) {
  if (error <= 0) return 0;
  const double cells = std::ceil(error * kErrorCells / limit);
  return cells <= kErrorCells ? static_cast<uint32_t>(cells) : kErrorCells + 1;
}

}  // namespace

std::vector<uint32_t> ChooseRanks(std::span<const RankTable> matrices, uint32_t rank) {
  double limit = 0;
  uint64_t size_of_rank = 0;
  for (const RankTable& matrix : matrices) {
    limit += std::fmax(matrix.errors[rank - matrix.least], 0);
    size_of_rank += rank * matrix.size;
  }
  // sizes[e]: the least size of the matrices so far, with errors of at most e cells.
  std::vector<uint64_t> sizes(kErrorCells + 1, 0);
  std::vector<std::vector<uint16_t>> taken;  // by matrix and e: the rank less the table's least
  for (const RankTable& matrix : matrices) {
    std::vector<uint64_t> with(sizes.size(), kImpossible);
    std::vector<uint16_t>& option = taken.emplace_back(sizes.size(), 0);
    for (size_t r = 0; r < matrix.errors.size(); ++r) {
      const uint64_t size = (matrix.least + r) * matrix.size;
      const uint32_t cells = CellsOf(matrix.errors[r], limit);
      for (uint32_t e = cells; e <= kErrorCells; ++e) {
        const uint64_t before = sizes[e - cells];
        if (before == kImpossible || before + size >= with[e]) continue;
        with[e] = before + size;
        option[e] = static_cast<uint16_t>(r);
      }
    }
    sizes = std::move(with);
  }
  std::vector<uint32_t> ranks(matrices.size(), rank);
  if (sizes.back() > size_of_rank) return ranks;
  // With more cells the size is never more.
  auto e = static_cast<uint32_t>(std::ranges::find(sizes, sizes.back()) - sizes.begin());
  for (size_t i = matrices.size(); i-- > 0;) {
    const uint16_t r = taken[i][e];
    ranks[i] = matrices[i].least + r;
    e -= CellsOf(matrices[i].errors[r], limit);
  }
  return ranks;
}

}  // namespace macaw::codecs
