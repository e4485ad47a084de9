// Ranks of matrices: how they are known, what each leaves out, and which are taken.
#include <algorithm>
#include <span>
#include <vector>

#include "codecs/columns.h"
#include "codecs/low_rank.h"
#include "codecs/rank_choice.h"
#include "codecs/spectrum.h"

namespace macaw::codecs {

uint32_t LowRank::LeastRank() const {
  return std::ranges::min(matrices_, {}, &Matrix::least).least;
}

uint32_t LowRank::MostRank() const { return std::ranges::max(matrices_, {}, &Matrix::most).most; }

std::vector<uint32_t> LowRank::RanksOf(Factor which, ConstVectorView basis) const {
  std::vector<uint32_t> ranks;
  DispatchDType(basis.dtype(), [&]<typename T>(T) {
    for (const Matrix& matrix : matrices_) {
      ranks.push_back(
          UsedColumns(basis.As<T>().data() + matrix.factor_at, matrix.RowsOf(which), matrix.most));
    }
  });
  return ranks;
}

double LowRank::MeanRank(const std::vector<uint32_t>& ranks) const {
  double numbers = 0, sides = 0;
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const auto side = static_cast<double>(matrices_[i].rows + matrices_[i].columns);
    numbers += ranks[i] * side;
    sides += side;
  }
  return numbers / sides;
}

void LowRank::Errors(ConstVectorView matrices, RandomStream random, VectorView errors) const {
  DispatchDType(matrices.dtype(), [&]<typename T>(T) {
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const Matrix& matrix = matrices_[i];
      const std::vector<double> of = SquaredErrors(matrices.As<T>().data() + matrix.at, matrix.rows,
                                                   matrix.columns, matrix.most, random);
      std::ranges::copy(std::span(of).subspan(matrix.least),
                        errors.As<double>().subspan(errors_->entries()[i].offset).begin());
    }
  });
}

std::vector<uint32_t> LowRank::Choose(ConstVectorView errors) const {
  std::vector<RankTable> tables;
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const LayoutEntry& entry = errors_->entries()[i];
    const std::span<const double> of = errors.As<double>().subspan(entry.offset, entry.size);
    tables.push_back({.least = matrices_[i].least,
                      .errors = {of.begin(), of.end()},
                      .size = matrices_[i].rows + matrices_[i].columns});
  }
  return ChooseRanks(tables, rank_);
}

}  // namespace macaw::codecs
