#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "server/engine/evaluation_board.h"
#include "server/engine/phase.h"
#include "server/engine/ticket.h"
#include "server/log/record.h"

namespace macaw::server {

enum class RunEnd : uint8_t { kFinished, kStopped, kInterrupted, kFailed };

// Everything that the round engine asks for but does not do itself: arithmetic on vectors, files,
// answers to calls. All methods are called on the engine's thread. A method must not block, and
// must not call the engine before it returns.
class EngineHost {
 public:
  virtual ~EngineHost() = default;
  // Encodes the phase's broadcast and opens its sum, then calls RoundEngine::BroadcastReady.
  virtual void Prepare(const PhaseOrder& order) = 0;
  // Add: adds the decoded sum that came with this commit to the phase's sum, then calls PartAdded.
  // Discard: drops the decoded sum.
  virtual void Add(Ticket commit) = 0;
  virtual void Discard(Ticket commit) = 0;
  // Adds a part that an earlier server accepted, then calls PartAdded with ticket 0. The part names
  // its sums by digest only; the host reads their bytes.
  virtual void AddAgain(const fleet::Part& part) = 0;
  // Divides the sum, lets the algorithm move the model, then calls Applied.
  virtual void Apply(PhaseReport report) = 0;
  // The round's evaluation is complete. Returns the reason if the run should stop now.
  virtual std::optional<std::string> Evaluated(const EvaluationSums& sums) = 0;
  // The same for a round whose evaluation was completed by an earlier server.
  virtual std::optional<std::string> EvaluatedBefore(Round round) = 0;
  virtual void AnswerLease(Ticket ticket, fleet::LeaseReply reply) = 0;
  virtual void AnswerCommit(Ticket ticket, fleet::CommitReply reply) = 0;
  // Writes what has happened to the run's log (server/log/record.h).
  virtual void Record(log::Record record) = 0;
  // The session has ended; its node is gone or was replaced.
  virtual void SessionEnded(SessionId session) = 0;
  // The run has ended. Called once, as the last call. `status` is OK unless the run failed.
  virtual void Ended(RunEnd end, absl::Status status, std::string reason) = 0;
};

}  // namespace macaw::server
