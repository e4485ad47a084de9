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

// Everything the round engine asks for but does not do: vectors, files, answers. Called on the
// engine's thread; must not block and must not call back into the engine before returning.
class EngineHost {
 public:
  virtual ~EngineHost() = default;
  // Encode the phase's broadcast and open its sum, then call RoundEngine::BroadcastReady.
  virtual void Prepare(const PhaseOrder& order) = 0;
  // Add the decoded sum that came with this commit to the phase's, then call PartAdded; or forget
  // it.
  virtual void Add(Ticket commit) = 0;
  virtual void Discard(Ticket commit) = 0;
  // Add a part that an earlier server had accepted, of which only the names of its sums are at
  // hand, then call PartAdded with ticket 0.
  virtual void AddAgain(const fleet::Part& part) = 0;
  // Divide, let the algorithm move the model, then call Applied.
  virtual void Apply(PhaseReport report) = 0;
  // The round's evaluation is complete. Returns why the run should stop now, if it should.
  virtual std::optional<std::string> Evaluated(const EvaluationSums& sums) = 0;
  // Likewise of a round whose evaluation an earlier server had completed.
  virtual std::optional<std::string> EvaluatedBefore(Round round) = 0;
  virtual void AnswerLease(Ticket ticket, fleet::LeaseReply reply) = 0;
  virtual void AnswerCommit(Ticket ticket, fleet::CommitReply reply) = 0;
  // What has happened: for the run's log (server/log/record.h).
  virtual void Record(log::Record record) = 0;
  // Nobody speaks in this session any more.
  virtual void SessionEnded(SessionId session) = 0;
  // Called once, last. `status` is OK unless the run failed.
  virtual void Ended(RunEnd end, absl::Status status, std::string reason) = 0;
};

}  // namespace macaw::server
