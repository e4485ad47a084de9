#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "plan/attack.h"
#include "plan/task.h"

namespace macaw::data {

// A backdoor's trigger: a bright square in the lower right corner of an image, on all channels, as
// in Gu, Dolan-Gavitt, Garg, "BadNets", 2017. A pixel's stored value becomes 255 where images are
// bytes and 1 where they are numbers. The keys are those of plan/attack.h.

// Checks the keys against what they change: the run's task, classes and images. Errors name the
// key. OK for other attacks.
absl::Status CheckTrigger(const AttackConfig& attack, TaskKind task, int64_t classes,
                          const std::vector<int64_t>& input_shape);

// What a hostile client trains on: each row has the trigger and the target class with the
// probability attack.poisoned, drawn from the seed for each of the client's rows (`rows.noise` and
// `rows.owners` say whose it is), so that it is the same in every epoch and on every node. Costs a
// copy of the rows, which lives as long as the result. Errors: rows that are no images of this
// shape, or that lie elsewhere.
absl::StatusOr<Rows> Poisoned(Rows rows, const AttackConfig& attack,
                              const std::vector<int64_t>& input_shape);

// What a backdoor is judged by: the rows of other classes, in order, all of them with the trigger
// and the target class. So the accuracy on them is the share that the backdoor misleads.
absl::StatusOr<Rows> Stamped(Rows rows, const AttackConfig& attack,
                             const std::vector<int64_t>& input_shape);

}  // namespace macaw::data
