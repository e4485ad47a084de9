#include "codecs/low_rank.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

// What is left of a column, beside what it was, for it to count as a direction of its own.
constexpr double kDependent = 1e-6;

// out (rows × r) ← A·B with A rows × inner, B inner × r.
template <typename T>
void Multiply(const T* a, const T* b, uint64_t rows, uint64_t inner, uint32_t rank, T* out) {
  std::vector<double> sum(rank);
  for (uint64_t i = 0; i < rows; ++i) {
    std::ranges::fill(sum, 0.0);
    for (uint64_t j = 0; j < inner; ++j) {
      const double value = a[i * inner + j];
      for (uint32_t k = 0; k < rank; ++k) sum[k] += value * double{b[j * rank + k]};
    }
    for (uint32_t k = 0; k < rank; ++k) out[i * rank + k] = static_cast<T>(sum[k]);
  }
}

// out (columns × r) ← Aᵀ·B with A rows × columns, B rows × r.
template <typename T>
void MultiplyTransposed(const T* a, const T* b, uint64_t rows, uint64_t columns, uint32_t rank,
                        T* out) {
  std::vector<double> sum(columns * rank, 0.0);
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < columns; ++j) {
      const double value = a[i * columns + j];
      for (uint32_t k = 0; k < rank; ++k) sum[j * rank + k] += value * double{b[i * rank + k]};
    }
  }
  for (uint64_t i = 0; i < columns * rank; ++i) out[i] = static_cast<T>(sum[i]);
}

double NormOf(std::span<const double> column) {
  double squares = 0;
  for (const double value : column) squares += value * value;
  return std::sqrt(squares);
}

// Takes the components along `done` out of the column, twice.
void MakeOrthogonal(const std::vector<std::vector<double>>& done, std::span<double> column) {
  for (int pass = 0; pass < 2; ++pass) {
    for (const std::vector<double>& other : done) {
      double product = 0;
      for (size_t i = 0; i < column.size(); ++i) product += other[i] * column[i];
      for (size_t i = 0; i < column.size(); ++i) column[i] -= product * other[i];
    }
  }
}

template <typename T>
void CopyPiece(ConstVectorView from, uint64_t at, VectorView to, uint64_t to_at, uint64_t size) {
  std::ranges::copy(from.As<T>().subspan(at, size),
                    to.As<T>().begin() + static_cast<ptrdiff_t>(to_at));
}

}  // namespace

absl::StatusOr<LowRank> LowRank::Make(LayoutPtr layout, uint32_t rank) {
  LowRank made;
  made.rank_ = rank;
  std::vector<LayoutEntry> factors, rest;
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
    made.matrices_.push_back({.rows = rows, .columns = columns, .at = entry.offset});
    factors.push_back(
        {.name = entry.name, .shape = {static_cast<int64_t>(std::max(rows, columns)), rank}});
  }
  if (factors.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has no tensor of which factors of rank ", rank,
                     " are fewer numbers than itself: take a smaller rank, or another codec"));
  }
  MACAW_ASSIGN_OR_RETURN(made.factor_, ParameterLayout::Make(factors, layout->dtype()));
  for (size_t i = 0; i < made.matrices_.size(); ++i)
    made.matrices_[i].factor_at = made.factor_->entries()[i].offset;
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
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    std::ranges::fill(out.As<T>(), T{0});
    for (const Matrix& matrix : matrices_) {
      const T* const from = matrices.As<T>().data() + matrix.at;
      const T* const other = basis.As<T>().data() + matrix.factor_at;
      T* const to = out.As<T>().data() + matrix.factor_at;
      if (which == Factor::kP) {
        Multiply(from, other, matrix.rows, matrix.columns, rank_, to);
      } else {
        MultiplyTransposed(from, other, matrix.rows, matrix.columns, rank_, to);
      }
    }
  });
}

void LowRank::Expand(Factor which, ConstVectorView factor, ConstVectorView basis,
                     VectorView out) const {
  const ConstVectorView p = which == Factor::kP ? factor : basis;
  const ConstVectorView q = which == Factor::kP ? basis : factor;
  DispatchDType(out.dtype(), [&]<typename T>(T) {
    for (const Matrix& matrix : matrices_) {
      const T* const left = p.As<T>().data() + matrix.factor_at;
      const T* const right = q.As<T>().data() + matrix.factor_at;
      T* const to = out.As<T>().data() + matrix.at;
      for (uint64_t i = 0; i < matrix.rows; ++i) {
        for (uint64_t j = 0; j < matrix.columns; ++j) {
          double sum = 0;
          for (uint32_t k = 0; k < rank_; ++k)
            sum += double{left[i * rank_ + k]} * double{right[j * rank_ + k]};
          to[i * matrix.columns + j] = static_cast<T>(sum);
        }
      }
    }
  });
}

void LowRank::Orthonormalise(Factor which, RandomStream random, VectorView factor) const {
  DispatchDType(factor.dtype(), [&]<typename T>(T) {
    for (const Matrix& matrix : matrices_) {
      const uint64_t rows = matrix.RowsOf(which);
      T* const values = factor.As<T>().data() + matrix.factor_at;
      std::vector<std::vector<double>> done;
      for (uint32_t k = 0; k < rank_; ++k) {
        std::vector<double> column(rows);
        for (uint64_t i = 0; i < rows; ++i) column[i] = values[i * rank_ + k];
        double before = NormOf(column);
        MakeOrthogonal(done, column);
        double norm = NormOf(column);
        while (!(norm > kDependent * before) || !(norm > 0)) {  // r < rows, so a draw is soon left
          for (double& value : column) value = random.Normal();
          before = NormOf(column);
          MakeOrthogonal(done, column);
          norm = NormOf(column);
        }
        for (uint64_t i = 0; i < rows; ++i) {
          column[i] /= norm;
          values[i * rank_ + k] = static_cast<T>(column[i]);
        }
        done.push_back(std::move(column));
      }
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
