#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/vector.h"

namespace macaw::training {

// Rows as numbers: features [rows, width], normalised as for training, and a label for each row, a
// class or a target; none where the task is reconstruction.
struct NumberedRows {
  size_t width = 0;
  std::span<const double> features;
  std::span<const int64_t> classes;
  std::span<const double> targets;

  size_t count() const { return width == 0 ? 0 : features.size() / width; }
  std::span<const double> row(size_t i) const { return features.subspan(i * width, width); }
};

// Sums over a client's rows, for rules that solve for a model instead of training it. Stateless:
// one object serves every slot.
class RowStatistics {
 public:
  virtual ~RowStatistics() = default;
  virtual const LayoutPtr& layout() const = 0;  // of the sums, in float64
  // Adds those of the rows. Called with all rows of a client in their order, some at a time: how
  // many must not matter. `at`: the stage's start.
  virtual void Add(const NumberedRows& rows, ConstVectorView at, VectorView sums) const = 0;
};

}  // namespace macaw::training
