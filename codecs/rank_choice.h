#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace macaw::codecs {

// One matrix, for a choice of ranks.
struct RankTable {
  uint32_t least = 1;          // rank
  std::vector<double> errors;  // squared, of the ranks least, least + 1, …; below zero is zero
  uint64_t size = 1;           // what a rank takes: n + m
};

// The ranks with which Σ rank·size is least, while Σ error is at most what it is with rank R in
// every matrix. An R is in every table. Of equal sizes the one with the least error.
//
// A dynamic programme over matrices and errors in 10,000 cells of that sum. Cells are rounded up,
// so the errors' true sum keeps the limit, and a choice is missed that keeps it by less than a cell
// a matrix. Where that leaves none, it is R everywhere: the size is never more.
//
// Markov, Alimohammadi, Frantar, Alistarh, "L-GreCo: Layerwise-Adaptive Gradient Compression for
// Efficient and Accurate Deep Learning", MLSys 2024. Takes matrices · ranks · 10,000 steps.
std::vector<uint32_t> ChooseRanks(std::span<const RankTable> matrices, uint32_t rank);

}  // namespace macaw::codecs
