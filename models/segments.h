#pragma once

#include <cstddef>
#include <vector>

#include "models/spec.h"

namespace macaw::models {

// Where a model's chain of layers is cut for activation checkpointing ([local] checkpoint; Chen et
// al. 2016, arXiv 1604.06174): a segment keeps its input alone, and is computed again in the
// backward pass. A block (transformer, residual) is one layer of the chain, and never cut.
struct Segments {
  // The layer behind each segment's last, in order. The last one ends at the model's, begins with
  // the last layer that has parameters, and keeps everything: its backward pass comes first.
  std::vector<size_t> ends;
  // Estimates of the most numbers that are kept at a time for one example: with these segments, and
  // without any.
  double most = 0, whole = 0;

  bool save() const { return most < whole; }
};

// A chain of steps, of whatever kind.
struct Chain {
  std::vector<double> inputs;  // the numbers that come into each step
  std::vector<double> kept;    // what each step keeps for the backward pass, its outputs included
  size_t last = 0;             // the first step of the last segment
};

// The segments with the smallest `most` that the paper's Algorithm 3 finds: a segment ends where
// its steps keep more than a budget, and all budgets are tried. One segment where none save. Takes
// O(steps³) time, a millisecond for a hundred steps; beyond 150 in front of the last segment it
// cuts at 150 places alone, spread evenly.
Segments SegmentsOf(const Chain& chain);
// Of a list of layers; of a scripted module none (script_segments.h).
Segments SegmentsOf(const ModelSpec& spec);

}  // namespace macaw::models
