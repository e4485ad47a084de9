#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "core/vector.h"

namespace macaw::codecs {

// Which of the two factors of M ≈ P Qᵀ is meant.
enum class Factor : uint8_t { kP, kQ };

// Whether all matrices keep the rank of the run, R, or each has its own: one of ⌈R/2⌉ … 2R.
enum class Ranks : uint8_t { kFixed, kChosen };

// Tensors of a layout as matrices M of n rows and m columns (all dimensions but the first), and
// these as products P Qᵀ of n × r and m × r. Taken are tensors of parameters for which R·(n + m) is
// less than n·m; the others are `rest`. Acts on f32 and f64 vectors, sums in double precision in a
// fixed order.
//
// Vogels, Karimireddy, Jaggi, "PowerSGD", NeurIPS 2019; Zhang, Shi, Chu, Li, "Evaluation and
// Optimization of Gradient Compression for Distributed Deep Learning" (ACP-SGD), ICDCS 2023.
//
// The columns of an orthonormal basis that are not zero are the rank in force: products with it
// have zeros in the others, and nobody needs to be told the ranks.
//
// Immutable; all threads at once.
class LowRank {
 public:
  // An error if no tensor is taken.
  static absl::StatusOr<LowRank> Make(LayoutPtr layout, uint32_t rank, Ranks ranks = Ranks::kFixed);

  // Of P or of Q: a tensor of r × max(n, m) numbers for each matrix, with the largest rank that it
  // can have. They begin with the columns, n or m numbers each, one after the other. What is left
  // stays zero, and costs nothing on the wire.
  const LayoutPtr& factor() const { return factor_; }
  // The tensors that are not taken, buffers too; null: all are.
  const LayoutPtr& rest() const { return rest_; }
  // The most numbers that are sent of a vector in a round, at rank R: one factor of each matrix, or
  // both, and the rest.
  uint64_t MostSent(bool both) const;
  // The most products that a number of a factor is the sum of: the largest n or m.
  uint64_t LongestSum() const;

  // out ← M Q if P is asked for, else Mᵀ P. `basis`: the other factor.
  void Project(ConstVectorView matrices, Factor which, ConstVectorView basis, VectorView out) const;
  // The matrices of `out` ← P Qᵀ. `factor` is the one named, `basis` the other. The rest of `out`
  // stays as it is.
  void Expand(Factor which, ConstVectorView factor, ConstVectorView basis, VectorView out) const;
  // Makes the columns of each matrix's factor orthonormal, as many as its rank says, and the others
  // zero. A column that is zero, or depends on those before it, is drawn from `random`
  // (columns.h). Columns depend on those before them alone: the first r are those of a run of rank
  // r.
  void Orthonormalise(Factor which, const std::vector<uint32_t>& ranks, RandomStream random,
                      VectorView factor) const;

  void TakeRest(ConstVectorView from, VectorView rest) const;
  void PutRest(ConstVectorView rest, VectorView into) const;
  void ZeroRest(VectorView v) const;

  // ---- Ranks, one a matrix

  size_t matrices() const { return matrices_.size(); }
  uint32_t rank() const { return rank_; }  // R
  // The least rank of any matrix, and the largest.
  uint32_t LeastRank() const;
  uint32_t MostRank() const;
  std::vector<uint32_t> StartRanks() const {
    return std::vector<uint32_t>(matrices_.size(), rank_);
  }
  // Those in force, of an orthonormal basis.
  std::vector<uint32_t> RanksOf(Factor which, ConstVectorView basis) const;
  // The one rank with which P and Q of all matrices would have as many numbers.
  double MeanRank(const std::vector<uint32_t>& ranks) const;

  // Of each matrix a tensor with the squared error of its best approximation of each rank that it
  // can have, in double precision. Null with kFixed.
  const LayoutPtr& errors() const { return errors_; }
  // Fills it in (spectrum.h). NaN or infinite of matrices that are not finite.
  void Errors(ConstVectorView matrices, RandomStream random, VectorView errors) const;
  // The ranks with which P and Q of all matrices have the fewest numbers, of those whose errors add
  // up to no more than with R everywhere (rank_choice.h).
  std::vector<uint32_t> Choose(ConstVectorView errors) const;

 private:
  struct Matrix {
    uint64_t rows = 0, columns = 0;  // n, m
    uint64_t at = 0;                 // of M in the layout, in elements
    uint64_t factor_at = 0;          // of P and Q in theirs
    uint32_t least = 1, most = 1;    // ranks
    uint64_t RowsOf(Factor which) const { return which == Factor::kP ? rows : columns; }
  };
  struct Piece {
    uint64_t at = 0, rest_at = 0, size = 0;
  };

  uint32_t rank_ = 1;
  std::vector<Matrix> matrices_;
  std::vector<Piece> pieces_;  // of the rest
  LayoutPtr factor_, rest_, errors_;
};

}  // namespace macaw::codecs
