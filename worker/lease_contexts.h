#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/fleet/link.h"
#include "worker/downloads.h"
#include "worker/phase.h"

namespace macaw::worker {

// Makes of a session's leases what their work needs: the phase or evaluation, with its models,
// which it fetches. What is open of a phase is kept, so its next lease fetches nothing. One thread.
class LeaseContexts {
 public:
  // Both must outlive this.
  LeaseContexts(const RunContext& context, Downloads& downloads)
      : context_(context), downloads_(downloads) {}

  // The phase of the lease, for each age of the models from which its clients train. kNotFound: the
  // server has the models no longer.
  absl::StatusOr<std::vector<std::shared_ptr<const PhaseContext>>> Open(
      const fleet::TrainingLease& lease);
  absl::StatusOr<std::shared_ptr<const EvaluationContext>> Open(
      const fleet::EvaluationLease& lease);
  // Before an update that has been made is encoded and sent, which takes long where it is large:
  // lets the phase's broadcast go if it is large and the server asks for nothing that needs it
  // again, but for clients that other nodes give back. `phase` then has no broadcast.
  void LetGoOfLarge(std::shared_ptr<const PhaseContext>& phase);

 private:
  bool IsNeededOnce(const PhaseContext& phase) const;
  absl::StatusOr<std::shared_ptr<const PhaseContext>> Open(const fleet::TrainingLease& lease,
                                                           uint32_t staleness,
                                                           const fleet::Broadcast& broadcast);
  // Gets the bytes of the phase's broadcast, and its views of them.
  absl::Status FetchChannels(PhaseContext& phase);

  const RunContext& context_;
  Downloads& downloads_;
  uint64_t phase_ids_ = 0;                                   // given
  std::vector<std::shared_ptr<const PhaseContext>> phases_;  // of the open phase
};

// The round in which a client counts that began in `begun`, as the lease says.
std::shared_ptr<const PhaseContext> RoundOfArrival(const PhaseContext& begun,
                                                   const fleet::TrainingLease& lease,
                                                   const fleet::Assignment& assignment);

}  // namespace macaw::worker
