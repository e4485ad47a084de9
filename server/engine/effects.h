#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "server/engine/evaluation_sums.h"
#include "server/engine/journal_data.h"
#include "server/engine/phase.h"
#include "server/engine/ticket.h"
#include "server/log/record.h"

// What follows from an event of the round engine, as values. The engine decides, its caller does.
namespace macaw::server {

// A record for the run's log, with the data of the decision for a journal.
struct Recorded {
  log::Record record;
  JournalData journal;
};

// The answer to a call that was open under this ticket. Each ticket is answered once.
struct Reply {
  Ticket ticket = 0;
  std::variant<fleet::LeaseReply, fleet::CommitReply> answer;
};

// ---- orders: work that takes time, or that belongs to another component

// Encode the phase's broadcast and open its sum. Event afterwards: BroadcastReady.
struct PrepareBroadcast {
  PhaseOrder order;
};
// Add the decoded sum that came with this commit to the phase's sum. Event afterwards: PartAdded.
struct AddPart {
  Ticket commit = 0;
};
// Drop the decoded sum that came with this commit, if there is one.
struct DiscardPart {
  Ticket commit = 0;
};
// Add a part that an earlier server accepted. It names its sums by digest only. Event afterwards:
// PartAdded with ticket 0.
struct AddPartAgain {
  fleet::Part part;
};
// Divide the sum and let the algorithm move the model. Event afterwards: Applied.
struct ApplySum {
  PhaseReport report;
  // If this was the round's last phase, the algorithm then forgets its sums of what clients keep.
  bool begins_anew = false;
};
// The evaluation of the model after this round is complete: write its row, and say whether the run
// stops now. Event afterwards: EvaluationJudged. No sums: an earlier server has written the row.
struct JudgeEvaluation {
  Round round{};
  std::optional<EvaluationSums> sums;
};
// The session is over. Its node is gone or was replaced.
struct EndSession {
  SessionId session;
};
enum class RunEnd : uint8_t { kFinished, kStopped, kInterrupted, kFailed };
// The run is over. The engine gives this order once, as the last one. `status` is OK unless the run
// failed.
struct EndRun {
  RunEnd end = RunEnd::kFinished;
  absl::Status status;
  std::string reason;
  bool by_caller = false;  // of kStopped: StopHere has stopped it, and no rule
};

using Order = std::variant<PrepareBroadcast, AddPart, DiscardPart, AddPartAgain, ApplySum,
                           JudgeEvaluation, EndSession, EndRun>;

// The caller carries the effects of an event out before it gives the engine the next event, and in
// this order:
//   records  written in their order. A journal gets a decision's data before the log gets the
//            decision.
//   replies  sent once everything that they tell is written as safely as the run promises. With
//            durable commits they wait for the disk; the next event need not wait for them.
//   orders   begun in their order. Their results come back as events, at any later time.
// A reply never tells of an order that it comes with, and no record depends on one.
struct Effects {
  std::vector<Recorded> records;
  std::vector<Reply> replies;
  std::vector<Order> orders;
};

// Of an event that is answered at once. The answer is a reply: it is given after the records.
template <typename T>
struct Answered {
  T answer;
  Effects effects;
};

}  // namespace macaw::server
