#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/fleet/link.h"
#include "worker/acceptance.h"
#include "worker/availability.h"
#include "worker/phase.h"
#include "worker/running_marker.h"
#include "worker/worker.h"

namespace macaw::worker {

enum class SessionEnd : uint8_t { kRunOver, kStopRequested, kLost };

// What a session uses. All of it must outlive the session.
struct SessionParts {
  const Options& options;
  const data::Dataset& dataset;
  fleet::FleetLink& link;
  const RunContext& context;
  RunningMarker& marker;
  Availability* availability = nullptr;  // null: the node may always work
  uint64_t& commits;      // commits of this process so far; the next id follows from it
  Demand demand = {};     // of the run
  uint32_t sum_form = 0;  // HelloReply's
  uint64_t seed = 0;      // of this process, for the pauses before it tries again
  std::function<void()> begins = nullptr;  // called once the slots can train
};

// Runs one session: leases clients, trains them and commits. It ends when the run is over, when the
// server no longer knows the session, or when `stop` is requested (all leases are given back). An
// error ends the worker.
absl::StatusOr<SessionEnd> RunSession(const SessionParts& parts,
                                      const fleet::RegisterReply& registration,
                                      std::stop_token stop);

}  // namespace macaw::worker
