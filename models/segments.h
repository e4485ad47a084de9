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

// The segments with the smallest `most` that the paper's Algorithm 3 finds: a segment ends where
// its layers keep more than a budget, and all budgets are tried. One segment where none save, and
// of a scripted module none. Takes O(layers³) time, a millisecond for a hundred layers.
Segments SegmentsOf(const ModelSpec& spec);

}  // namespace macaw::models
