#include "codecs/low_rank.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codecs/columns.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

template <typename T>
Columns Load(const T* factor, uint64_t rows, uint32_t columns) {
  Columns block(rows, columns);
  std::ranges::copy(std::span(factor, rows * columns), block.values.begin());
  return block;
}

template <typename T>
void Store(const Columns& block, T* factor) {
  for (size_t i = 0; i < block.values.size(); ++i) factor[i] = static_cast<T>(block.values[i]);
}

template <typename T>
void CopyPiece(ConstVectorView from, uint64_t at, VectorView to, uint64_t to_at, uint64_t size) {
  std::ranges::copy(from.As<T>().subspan(at, size),
                    to.As<T>().begin() + static_cast<ptrdiff_t>(to_at));
}

}  // namespace

absl::StatusOr<LowRank> LowRank::Make(LayoutPtr layout, uint32_t rank, Ranks ranks) {
  LowRank made;
  made.rank_ = rank;
  std::vector<LayoutEntry> factors, rest, errors;
  for (const LayoutEntry& entry : layout->entries()) {
    const uint64_t rows = entry.shape.empty() ? 1 : static_cast<uint64_t>(entry.shape[0]);
    const uint64_t columns = entry.size / rows;
    const bool taken = entry.group == Group::kParameter && rows > 1 && columns > 1 &&
                       rank * (rows + columns) < entry.size;
    if (!taken) {
      made.pieces_.push_back({.at = entry.offset, .size = entry.size});
      rest.push_back({.name = entry.name, .shape = entry.shape, .group = entry.group});
      continue;
    }
    Matrix matrix{
        .rows = rows, .columns = columns, .at = entry.offset, .least = rank, .most = rank};
    if (ranks == Ranks::kChosen) {
      matrix.least = (rank + 1) / 2;
      // Factors of this rank are fewer numbers than the matrix, as those of R.
      const uint64_t largest = (entry.size - 1) / (rows + columns);
      matrix.most = static_cast<uint32_t>(std::min(uint64_t{2} * rank, largest));
      // No part of an update: attacks leave buffers as they are.
      errors.push_back(
          {.name = entry.name, .shape = {matrix.most - matrix.least + 1}, .group = Group::kBuffer});
    }
    made.matrices_.push_back(matrix);
    factors.push_back({.name = entry.name,
                       .shape = {matrix.most, static_cast<int64_t>(std::max(rows, columns))}});
  }
  if (factors.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has no tensor of which factors of rank ", rank,
                     " are fewer numbers than itself: take a smaller rank, or another codec"));
  }
  MACAW_ASSIGN_OR_RETURN(made.factor_, ParameterLayout::Make(factors, layout->dtype()));
  for (size_t i = 0; i < made.matrices_.size(); ++i)
    made.matrices_[i].factor_at = made.factor_->entries()[i].offset;
  if (!errors.empty()) {
    MACAW_ASSIGN_OR_RETURN(made.errors_, ParameterLayout::Make(errors, DType::kF64));
  }
  if (rest.empty()) return made;
  // The layout has parameters before buffers already, so the order stays.
  MACAW_ASSIGN_OR_RETURN(made.rest_, ParameterLayout::Make(rest, layout->dtype()));
  for (size_t i = 0; i < made.pieces_.size(); ++i)
    made.pieces_[i].rest_at = made.rest_->entries()[i].offset;
  return made;
}

uint64_t LowRank::MostSent(bool both) const {
  uint64_t p = 0, q = 0;
  for (const Matrix& matrix : matrices_) {
    p += matrix.rows * rank_;
    q += matrix.columns * rank_;
  }
  return (both ? p + q : std::max(p, q)) + (rest_ == nullptr ? 0 : rest_->count());
}

uint64_t LowRank::LongestSum() const {
  uint64_t longest = 1;
  for (const Matrix& matrix : matrices_) longest = std::max({longest, matrix.rows, matrix.columns});
  return longest;
}

void LowRank::Project(ConstVectorView matrices, Factor which, ConstVectorView basis,
                      VectorView out) const {
  const Factor other = which == Factor::kP ? Factor::kQ : Factor::kP;
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    std::ranges::fill(out.As<T>(), T{0});
    for (const Matrix& matrix : matrices_) {
      const T* const from = matrices.As<T>().data() + matrix.at;
      const T* const given = basis.As<T>().data() + matrix.factor_at;
      const uint64_t rows = matrix.RowsOf(other);
      const Columns b = Load(given, rows, UsedColumns(given, rows, matrix.most));
      Store(which == Factor::kP ? Product(from, matrix.rows, b)
                                : TransposedProduct(from, matrix.columns, b),
            out.As<T>().data() + matrix.factor_at);
    }
  });
}

void LowRank::Expand(Factor which, ConstVectorView factor, ConstVectorView basis,
                     VectorView out) const {
  const Factor other = which == Factor::kP ? Factor::kQ : Factor::kP;
  const ConstVectorView p = which == Factor::kP ? factor : basis;
  const ConstVectorView q = which == Factor::kP ? basis : factor;
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    for (const Matrix& matrix : matrices_) {
      const uint32_t used =
          UsedColumns(basis.As<T>().data() + matrix.factor_at, matrix.RowsOf(other), matrix.most);
      const auto rows_of = [&](ConstVectorView vector, uint64_t rows) {
        return Load(vector.As<T>().data() + matrix.factor_at, rows, used).RowMajor();
      };
      const std::vector<double> left = rows_of(p, matrix.rows), right = rows_of(q, matrix.columns);
      T* const to = out.As<T>().data() + matrix.at;
      for (uint64_t i = 0; i < matrix.rows; ++i) {
        for (uint64_t j = 0; j < matrix.columns; ++j) {
          double sum = 0;
          for (uint32_t k = 0; k < used; ++k) sum += left[i * used + k] * right[j * used + k];
          to[i * matrix.columns + j] = static_cast<T>(sum);
        }
      }
    }
  });
}

void LowRank::Orthonormalise(Factor which, const std::vector<uint32_t>& ranks, RandomStream random,
                             VectorView factor) const {
  DispatchDType(factor.dtype(), [&]<typename T>(T) {
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const uint64_t rows = matrices_[i].RowsOf(which);
      T* const values = factor.As<T>().data() + matrices_[i].factor_at;
      Columns block = Load(values, rows, ranks[i]);
      macaw::codecs::Orthonormalise(random, block);
      Store(block, values);
      std::ranges::fill(
          std::span(values + block.values.size(), (matrices_[i].most - ranks[i]) * rows), T{0});
    }
  });
}

void LowRank::TakeRest(ConstVectorView from, VectorView rest) const {
  DispatchDType(from.dtype(), [&]<typename T>(T) {
    for (const Piece& piece : pieces_)
      CopyPiece<T>(from, piece.at, rest, piece.rest_at, piece.size);
  });
}

void LowRank::PutRest(ConstVectorView rest, VectorView into) const {
  DispatchDType(into.dtype(), [&]<typename T>(T) {
    for (const Piece& piece : pieces_)
      CopyPiece<T>(rest, piece.rest_at, into, piece.at, piece.size);
  });
}

void LowRank::ZeroRest(VectorView v) const {
  DispatchDType(v.dtype(), [&]<typename T>(T) {
    for (const Piece& piece : pieces_)
      std::ranges::fill(v.As<T>().subspan(piece.at, piece.size), T{0});
  });
}

}  // namespace macaw::codecs
