#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/exact_sum.h"
#include "proto/fleet/link.h"
#include "worker/slot_pool.h"

namespace macaw::worker {

// The commits of a harvest, one after the other. The first has the evaluations and the sums of all
// clients that have one together; a client that is a part of its own has a commit. One thread.
class HarvestCommits {
 public:
  // `form`: in which the sums are sent. `knows_unsaid`: whether the server takes NaN for a metric
  // that an owner's program has not said; one of 0.1.0 gets 0. The harvest is not empty.
  HarvestCommits(Harvest harvest, aggregation::SumForm form, bool knows_unsaid);

  // The next one, without session and number. Its sums are forgotten here: the upload of a large
  // model may take long.
  absl::StatusOr<fleet::CommitRequest> Next();
  // Whether there is another one after those that Next returned.
  bool more() const { return first_ || !harvest_.alone.empty(); }

 private:
  absl::StatusOr<fleet::Part> PartOf(std::vector<fleet::ClientRecord> included,
                                     std::span<aggregation::ExactSum> sums) const;
  absl::StatusOr<fleet::Part> Together();
  absl::StatusOr<fleet::Part> NextAlone();

  Harvest harvest_;
  const aggregation::SumForm form_;
  const bool knows_unsaid_;
  bool first_ = true;
};

}  // namespace macaw::worker
