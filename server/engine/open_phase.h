#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "core/clock.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "scheduler/cohort.h"
#include "scheduler/dispatch.h"
#include "server/engine/attempt_table.h"
#include "server/engine/nodes.h"
#include "server/engine/phase.h"
#include "server/engine/round_policy.h"
#include "server/engine/round_tally.h"
#include "server/engine/waiting_clients.h"
#include "server/log/record.h"

namespace macaw::server {

// The open (round, phase): its cohort, which node holds which leases, what has been counted, what
// has gone wrong. A method that changes it returns the record for the run's log, if anything
// happened. Pure; one thread.
class OpenPhase {
 public:
  // `epoch`: the server's epoch, which is part of every fence.
  explicit OpenPhase(uint32_t epoch) : fences_(epoch) {}

  // ---- opening and closing
  // Opens the first phase of a round.
  void OpenRound(Round round, DrawnRound drawn, TimePoint now);
  // The clients that train on in the next round, with the ages that their models have there: those
  // that are leased. Only a live ArrivalStep (phase.h) has any once it is closed.
  std::vector<Seat> TrainOn() const;
  // Opens the next phase, with the same clients except those that were given up. `versions`: the
  // state versions that clients have written in this round. The newest of a client comes last.
  void OpenNext(std::span<const Attempt> versions, TimePoint now);
  // Forgets everything that has happened in the phase: all its clients wait again.
  void Reopen(TimePoint now);
  // The phase's broadcast is ready. Leases may begin once the queues are planned.
  log::RoundOpened Ready(PhaseModels models, const Digest& eligible, TimePoint now);
  // Call it behind Ready. An earlier server has closed the phase: of leases that end now the log
  // says nothing, since it has gone on.
  void DoneAgain() { again_ = true; }
  // The leases that the phase has taken over, for the log, behind its RoundOpened.
  std::vector<log::Leased> TakenOver() const;
  // Waiting: the waiting clients of each holding. Plan: sets the queue from which the holding's
  // clients are handed out.
  std::vector<scheduler::Cohort> Waiting() const;
  void Plan(HoldingId holding, scheduler::DispatchQueue queue);
  // Ends the phase and returns its result. Call it when the policy allows the phase to close.
  PhaseReport Close(uint32_t slots, TimePoint now);

  // ---- leases
  struct Handout {
    std::optional<fleet::TrainingLease> lease;
    std::optional<log::Leased> record;  // if there is a lease
    bool when_idle = false;             // the node should ask again only when a slot is idle
    bool passed_over = false;           // clients of its piece are now for other nodes
    TimePoint look_again = TimePoint::max();
  };
  // Leases the node a piece of its queue. `wanted`: the number of its idle slots. `most`: the most
  // clients that it may have leased then. `avoid(client)`: whether another node should train the
  // client. Such clients are set aside, and the next node that need not avoid them gets them.
  template <typename Avoid>
  Handout Take(const Node& node, uint32_t wanted, uint64_t most, TimePoint expires, TimePoint now,
               const Avoid& avoid);
  void Renew(WorkerId node, TimePoint expires) { table_.Renew(node, expires); }
  std::vector<Attempt> NotHeld(WorkerId node, std::span<const Attempt> attempts) const {
    return table_.NotHeld(node, attempts);
  }
  // Each of these queues clients again. It returns nullopt if there was no such client, or if the
  // phase is not ready: then the log does not know its leases yet; or if it is done again. Expire
  // adds to `late` the leases that expired.
  std::optional<log::Requeued> Expire(TimePoint now, std::vector<AttemptTable::Late>& late);
  std::optional<log::Requeued> DropNode(WorkerId node, const std::string& why);
  std::optional<log::Requeued> Release(WorkerId node, std::span<const Attempt> attempts,
                                       const std::string& why);
  void RemoveFromPlan(const Node& node);
  // The client's state is lost: it is trained without one. It must be in the cohort.
  void ForgetState(ClientId client);
  bool counted(ClientId client) const {
    return table_.StateOf(client) == AttemptTable::State::kCounted;
  }

  // ---- arrivals, of a live ArrivalStep
  bool live() const { return step_.has_value() && step_->live; }
  // How many arrivals close it. 0: it is no ArrivalStep.
  uint64_t arrivals() const { return step_.has_value() ? step_->arrivals : 0; }
  // Whether one more client may count in it.
  bool TakesArrivals() const { return table_.counted() + arriving_.size() < arrivals(); }
  // The client has trained and counts in this round, once its part is accepted. It must be leased.
  // Returns its lease in this round, for the part. May be called again.
  fleet::TrainingLease Arrive(const Attempt& attempt);
  bool arriving(ClientId client) const { return arriving_.contains(client); }
  // Gives up a client that is leased. `why`: reason and message.
  log::GaveUp GiveUp(const Attempt& attempt, log::GivenUp why);

  // ---- parts
  absl::Status Judge(WorkerId node, std::span<const Attempt> attempts) const {
    return table_.Judge(node, attempts);
  }
  // Call it only after Judge returned OK.
  log::Accepted Accept(const Node& node, uint64_t commit, const fleet::Part& part);
  void Adding() { ++adding_; }  // an accepted part is on its way into the sum
  void Added() { --adding_; }

  // ---- decisions of the server, not of a node
  // Gives up those of `clients` that are waiting.
  std::optional<log::GaveUp> DoWithout(const std::vector<log::GivenUp>& clients);
  // Gives up all clients that are waiting or leased; of a live ArrivalStep those that are arriving.
  // `why(seat, node)` returns a log::GivenUp with
  // reason and message; `node` has the client leased, nullopt: the client waits.
  template <typename Why>
  std::optional<log::GaveUp> GiveUpMissing(const Why& why);
  // Gives up every client, also those that were counted. The phase's sum must not be used.
  log::RoundLost Drop(const std::string& why);
  bool dropped() const { return !report_.dropped.empty(); }

  // ---- restoring the phase of an earlier server
  // Leases the client again, exactly as the earlier server had leased it.
  void Restore(const Attempt& attempt, WorkerId node, TimePoint expires);

  const PhaseOrder& order() const { return order_; }
  Round round() const { return order_.round; }
  Phase phase() const { return order_.phase; }
  const fleet::Broadcast& broadcast() const { return broadcast_; }
  uint64_t most_bytes_alone() const { return most_bytes_alone_; }  // as in PhaseModels
  const std::vector<Seat>& seats() const { return seats_; }
  const Seat* Find(ClientId client) const;
  const PhaseReport& report() const { return report_; }
  Standing standing() const;
  bool adding() const { return adding_ > 0; }
  // The virtual clock after the phase that was closed last, if that was its round's last one.
  const virtual_time::ClockState& clock() const { return clock_; }
  uint64_t leased_to(WorkerId node) const { return table_.leased_to(node); }
  std::vector<WorkerId> Holders() const { return table_.Holders(); }  // of leases, in order
  bool waiting(HoldingId holding) const { return waiting_.any(holding); }
  TimePoint NextExpiry() const { return table_.NextExpiry(); }

 private:
  void Open(Phase phase, TimePoint now);
  fleet::TrainingLease EmptyLease() const;  // of the phase
  fleet::Assignment AssignmentOf(const Seat& seat, const Attempt& attempt) const;
  // As Leased::staleness; empty: all are 0.
  std::vector<uint64_t> StalenessOf(const std::vector<Attempt>& attempts) const;
  std::optional<double> MeanStaleness() const;  // of a phase that is being closed
  void NoteGivenUp(const log::GivenUp& given_up, log::GaveUp& gave_up);
  Seat& SeatOf(ClientId client);  // the client must be in the cohort
  std::optional<log::Requeued> Requeue(std::vector<Attempt> ended, std::string why);
  scheduler::Ask AskOf(const Node& node, uint32_t wanted, TimePoint now) const;
  // How many clients the node may be leased now, if it may have leased `most`. A node on trial gets
  // one at a time.
  uint64_t MostFor(const Node& node, uint64_t most) const;
  Handout LeaseOut(const Node& node, const scheduler::Piece& piece, TimePoint expires,
                   TimePoint now);

  FenceSource fences_;
  PhaseOrder order_;
  std::vector<Seat> seats_;  // by client
  AttemptTable table_{{}};
  WaitingClients waiting_;
  fleet::Broadcast broadcast_;
  std::vector<fleet::OlderModel> older_;  // from which some of the seats train
  uint64_t most_bytes_alone_ = 0;
  PhaseReport report_;
  RoundTally tally_{0};
  std::optional<virtual_time::RoundTime> virtual_time_;  // of the round
  std::optional<ArrivalStep> step_;                      // of the round
  bool ready_ = false, again_ = false;                   // Ready, DoneAgain were called
  absl::btree_set<ClientId> arriving_;
  virtual_time::ClockState clock_;
  uint64_t adding_ = 0;
};

template <typename Why>
std::optional<log::GaveUp> OpenPhase::GiveUpMissing(const Why& why) {
  log::GaveUp gave_up{.round = order_.round, .phase = order_.phase};
  for (const Seat& seat : seats_) {
    const ClientId client = seat.entry.client;
    if (live() && !arriving(client)) continue;
    const AttemptTable::State state = table_.StateOf(client);
    if (state == AttemptTable::State::kQueued) {
      log::GivenUp one = why(seat, std::nullopt);
      one.attempt = {.client = client};
      table_.GiveUpQueued(client);
      NoteGivenUp(one, gave_up);
    } else if (state == AttemptTable::State::kLeased) {
      const auto [attempt, node] = table_.LeaseOf(client);
      log::GivenUp one = why(seat, std::optional<WorkerId>(node));
      one.attempt = attempt;
      table_.GiveUp({&attempt, 1});
      NoteGivenUp(one, gave_up);
    }
  }
  if (!live()) waiting_.Clear();  // no client waits any more
  if (gave_up.given_up.empty()) return std::nullopt;
  return gave_up;
}

template <typename Avoid>
OpenPhase::Handout OpenPhase::Take(const Node& node, uint32_t wanted, uint64_t most,
                                   TimePoint expires, TimePoint now, const Avoid& avoid) {
  const WaitingClients::Taken taken =
      waiting_.Take(node.holding, AskOf(node, wanted, now), MostFor(node, most), avoid);
  Handout handout = LeaseOut(node, taken.piece, expires, now);
  handout.passed_over = taken.passed_over;
  return handout;
}

}  // namespace macaw::server
