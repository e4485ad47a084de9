#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/fleet/client_table.h"
#include "proto/fleet/link.h"
#include "worker/running_marker.h"
#include "worker/worker.h"

namespace macaw::worker {

// What a node tells the server about itself and its clients when it registers. Its data is read for
// it; nothing of the run is known yet.

// The table of the clients of this node, for the server. `by_name`: with their names, which
// fleet::CheckNames must not refuse.
absl::StatusOr<fleet::ClientTable> TableOf(const data::Dataset& dataset, bool by_name);

// What the node reports about itself. The numeric profile is known once the server has sent its
// run.
absl::StatusOr<fleet::RegisterRequest> RequestFor(const Options& options,
                                                  const data::Dataset& dataset,
                                                  const RunningMarker& marker);

// Training rows of its largest client.
uint64_t LargestClient(const data::Dataset& dataset);

}  // namespace macaw::worker
