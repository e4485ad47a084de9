#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/logging.h"
#include "core/vector.h"
#include "proto/fleet/link.h"
#include "proto/fleet/messages.h"
#include "worker/patient_calls.h"
#include "worker/phase.h"

namespace macaw::worker {

// What a session has fetched from its server, and still has: the vectors of the open phase, the
// model under evaluation, and what clients or short forms begin from. One thread, the session's.
class FetchedBlobs {
 public:
  // All arguments must outlive it.
  FetchedBlobs(fleet::FleetLink& link, const PatientCalls& calls, const RunContext& context)
      : link_(link), calls_(calls), context_(context) {}

  // What is here, the one used last behind the others.
  std::vector<Digest> Digests() const;
  // From now on there is room for so many older models of a lease.
  void KeepOlder(size_t models) { most_models_ = std::max(most_models_, models); }

  // The bytes of the blob, from here or from the server.
  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob);
  // Gets the bytes of the broadcast. Returns its vectors, which are valid as long as `broadcast`.
  absl::StatusOr<std::vector<ConstVectorView>> FetchChannels(Phase phase,
                                                             fleet::Broadcast& broadcast);

 private:
  // Null: it is not here.
  const fleet::Blob* Cached(const Digest& digest);
  fleet::Blob Keep(fleet::Blob blob);
  // Fetch, of a vector of the broadcast: in its shortest form that can be read here, if it has any.
  absl::StatusOr<fleet::Blob> FetchVector(const fleet::Blob& blob, const LayoutPtr& layout);
  // `blob`, made of one of its short forms.
  absl::StatusOr<fleet::Blob> Expand(const fleet::CompactForm& form, const fleet::Blob& blob,
                                     const LayoutPtr& layout);

  fleet::FleetLink& link_;
  const PatientCalls& calls_;
  const RunContext& context_;
  const Logger log_{"worker"};
  size_t most_models_ = 0;         // older ones of a lease
  std::deque<fleet::Blob> cache_;  // the one used last is last
};

}  // namespace macaw::worker
