#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "plan/task.h"
#include "plan/transform.h"

namespace macaw::data {

// How one client's rows of one split differ from those that are stored. A function of the run's
// seed, the client's number in the run, the split and the place of the row among the client's rows,
// so it is the same on every node, for every number of workers, and in every epoch. A further
// change of labels is one more field here and one more line in LabelOf.
struct RowChanges {
  int64_t classes = 0;
  // Concept shift: class y is called renamed[y]; empty: all keep their numbers.
  std::vector<int32_t> renamed;
  // Concept shift: images are turned counter-clockwise by so many quarters (numpy.rot90).
  uint32_t quarter_turns = 0;
  // Then, the probability that a row gets another class, drawn uniformly among the others.
  double label_noise = 0;
  // Last, class y becomes classes − 1 − y: what a hostile client trains on (plan/attack.h).
  bool flipped = false;

  bool labels() const { return !renamed.empty() || label_noise > 0 || flipped; }
  bool any() const { return labels() || quarter_turns > 0; }
};

// Checks the keys of [data] that change rows against what they are to change. `classes`: of the
// run. Errors name the key.
absl::Status CheckChanges(const TransformConfig& transform, TaskKind task, int64_t classes,
                          const std::vector<int64_t>& input_shape);

// How a group of concept shift (plan/transform.h) sees rows: those of its clients, and the central
// test set when that is evaluated for the group. `seed`: the run's.
RowChanges ShiftOf(const TransformConfig& transform, uint64_t seed, uint32_t group,
                   int64_t classes);

// The changes of the client's rows of key.split: concept shift of all of them, label noise of
// training rows. Takes time O(classes) at most.
//
// label-permutation: with the classes in an order σ drawn from the seed, group g calls σ(i)
// σ((i + g) mod classes). So any two groups disagree about every class.
// rotation: group g turns images by 360 · g / groups degrees (Ghosh et al. 2020, IFCA).
RowChanges ChangesOf(const TransformConfig& transform, const NoiseKey& key, int64_t classes);

// The class of the client's `row`-th row (of key.split), whose stored class is `label`.
int32_t LabelOf(const RowChanges& changes, const NoiseKey& key, uint64_t row, int32_t label);

// The rows with the changes: one for each of rows.owners, or one where all rows are one client's.
// Costs a copy of their labels, and of their features where those are
// turned or are not stored one behind the other; the copy lives as long as the rows do. Rows
// without changes are returned as they are. Errors: rows without classes (regression targets, rows
// that are only declared), a stored class that is not below RowChanges::classes.
absl::StatusOr<Rows> ApplyChanges(Rows rows, std::span<const RowChanges> changes,
                                  const std::vector<int64_t>& input_shape);

}  // namespace macaw::data
