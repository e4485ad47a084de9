#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "aggregation/channel.h"
#include "core/clock.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "server/engine/evaluation_board.h"
#include "server/log/record.h"

namespace macaw::server {

// Names a call that is waiting for its answer.
using Ticket = uint64_t;

// What one (round, phase) is about, fixed before its first lease.
struct PhaseOrder {
  Round round{};
  Phase phase{};
  aggregation::GridOrder grid;
};

// When what happened in a phase. Differs from run to run, like everything that is timed.
struct PhaseTimes {
  TimePoint opened{};    // its broadcast was asked for
  TimePoint ready{};     // its broadcast was: it is planned, and leases begin
  TimePoint gathered{};  // the last part was in the sum
};

// One client's turn on a slot, by the server's clock; as its worker reports it.
struct Turn {
  ClientId client;
  WorkerId worker;
  uint32_t slot = 0;
  TimePoint began{};
  double state_seconds = 0, load_seconds = 0, train_seconds = 0;
  uint64_t steps = 0;
};

// What came of it, in client order.
struct PhaseReport {
  Round round{};
  Phase phase{};
  uint64_t cohort = 0;                       // clients drawn
  std::vector<fleet::ClientRecord> records;  // exactly the clients in the sum
  std::vector<fleet::LeftOut> left_out;
  std::vector<fleet::LeftOut> left_out_before;  // by the round's earlier phases, in their order
  uint64_t requeued = 0;  // attempts that ended without a result; differs from run to run
  PhaseTimes times;
  uint32_t slots = 0;       // of the workers that were there when it closed
  std::vector<Turn> turns;  // of the records, as they arrived
};

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
  // Divide, let the algorithm move the model, then call Applied.
  virtual void Apply(PhaseReport report) = 0;
  // The round's evaluation is complete. Returns why the run should stop now, if it should.
  virtual std::optional<std::string> Evaluated(const EvaluationSums& sums) = 0;
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
