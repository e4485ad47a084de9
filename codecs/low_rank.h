#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/random.h"
#include "core/vector.h"

namespace macaw::codecs {

// Which of the two factors of M ≈ P Qᵀ is meant.
enum class Factor : uint8_t { kP, kQ };

// Tensors of a layout as matrices M of n rows and m columns (all dimensions but the first), and
// these as products P Qᵀ of n × r and m × r. Taken are tensors of parameters for which r·(n + m) is
// less than n·m; the others are `rest`. Acts on f32 and f64 vectors, sums in double precision in a
// fixed order.
//
// Vogels, Karimireddy, Jaggi, "PowerSGD", NeurIPS 2019; Zhang, Shi, Chu, Li, "Evaluation and
// Optimization of Gradient Compression for Distributed Deep Learning" (ACP-SGD), ICDCS 2023.
//
// Immutable; all threads at once.
class LowRank {
 public:
  // An error if no tensor is taken.
  static absl::StatusOr<LowRank> Make(LayoutPtr layout, uint32_t rank);

  // Of P or of Q: a tensor of max(n, m) × r for each matrix, of which the first n or m rows are
  // used. The others stay zero, and cost nothing on the wire.
  const LayoutPtr& factor() const { return factor_; }
  // The tensors that are not taken, buffers too; null: all are.
  const LayoutPtr& rest() const { return rest_; }
  // The most numbers that are sent of a vector in a round: one factor of each matrix, or both, and
  // the rest.
  uint64_t MostSent(bool both) const;
  // The most products that a number of a factor is the sum of: the largest n or m.
  uint64_t LongestSum() const;

  // out ← M Q if P is asked for, else Mᵀ P. `basis`: the other factor.
  void Project(ConstVectorView matrices, Factor which, ConstVectorView basis, VectorView out) const;
  // The matrices of `out` ← P Qᵀ. `factor` is the one named, `basis` the other. The rest of `out`
  // stays as it is.
  void Expand(Factor which, ConstVectorView factor, ConstVectorView basis, VectorView out) const;
  // Makes the columns of each matrix's factor orthonormal (Gram-Schmidt, twice). A column that is
  // zero, or depends on those before it, is drawn anew from `random`, so it is never NaN and never
  // stays zero.
  void Orthonormalise(Factor which, RandomStream random, VectorView factor) const;

  void TakeRest(ConstVectorView from, VectorView rest) const;
  void PutRest(ConstVectorView rest, VectorView into) const;
  void ZeroRest(VectorView v) const;

 private:
  struct Matrix {
    uint64_t rows = 0, columns = 0;  // n, m
    uint64_t at = 0;                 // of M in the layout, in elements
    uint64_t factor_at = 0;          // of P and Q in theirs
    uint64_t RowsOf(Factor which) const { return which == Factor::kP ? rows : columns; }
  };
  struct Piece {
    uint64_t at = 0, rest_at = 0, size = 0;
  };

  uint32_t rank_ = 1;
  std::vector<Matrix> matrices_;
  std::vector<Piece> pieces_;  // of the rest
  LayoutPtr factor_, rest_;
};

}  // namespace macaw::codecs
