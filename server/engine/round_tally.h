#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/digest.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "server/engine/phase.h"
#include "virtual_time/clock.h"

namespace macaw::server {

// What the phases of a round add up to: what its clients trained and who was left out, the bytes
// that devices move, the virtual clock. Pure; one thread.
class RoundTally {
 public:
  // `drawn`: clients in the round's first phase.
  explicit RoundTally(uint64_t drawn) : drawn_(drawn) {}

  // So many clients fetch those vectors of the broadcast that no phase before it has sent.
  void Sent(const fleet::Broadcast& broadcast, uint64_t clients);
  // Completes the report of a phase that closes with what the round's earlier phases had, and
  // counts the phase. Puts its lists into client order. `time`: of the round.
  void Close(PhaseReport& report, const std::optional<virtual_time::RoundTime>& time);

  uint64_t drawn() const { return drawn_; }

 private:
  // Adds to the records what their clients trained in the round's earlier phases.
  void AddTrainedBefore(std::vector<fleet::ClientRecord>& records);

  uint64_t drawn_;
  std::vector<fleet::LeftOut> left_out_before_;  // in the round's earlier phases
  // What each client has trained in the round's closed phases.
  struct Trained {
    uint64_t steps = 0;
    std::vector<double> sums, personal_sums;
  };
  absl::flat_hash_map<ClientId, Trained> trained_;
  std::vector<Digest> fetched_;             // in the round, by each client that is still in it
  uint64_t bytes_up_ = 0, bytes_down_ = 0;  // as in PhaseReport, of the round so far
};

}  // namespace macaw::server
