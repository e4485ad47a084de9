#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/linear_chain.h"
#include "algorithms/statistics.h"

// What DAEF's clients sum over their rows (daef.cc), in the phase of each layer.

namespace macaw::algorithms {

// The least-squares problem of a layer behind the encoder: each of K targets has weights v_k on the
// terms ũ.
struct Decoding {
  size_t layer = 0;
  bool last = false;
  size_t terms = 0;    // of ũ
  size_t targets = 0;  // K
  bool alike = false;  // all targets have one Gram matrix, since f' is 1

  static Decoding Of(const LinearChain& chain, size_t layer);
  size_t grams() const { return alike ? 1 : targets; }
};

// Entries of a phase's sums: those of the encoder are Σ xxᵀ above its diagonal, and the rows; those
// of a decoder's layer of each Gram matrix Σ f'²·ũũᵀ above its diagonal, of each target
// Σ f'²·z·ũ, Σ f'²·z² over all targets, and the rows.
struct EncoderEntry {
  enum : size_t { kGram, kRows };
};
struct DecoderEntry {
  enum : size_t { kGrams, kMoments, kSquares, kRows };
};

// The layouts of the sums, by phase.
absl::StatusOr<std::vector<LayoutPtr>> DaefLayouts(const LinearChain& chain);
PhaseSums DaefSums(const LinearChain& chain, const std::vector<LayoutPtr>& layouts);

}  // namespace macaw::algorithms
