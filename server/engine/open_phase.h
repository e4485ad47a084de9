#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "scheduler/cohort.h"
#include "scheduler/dispatch.h"
#include "server/engine/attempt_table.h"
#include "server/engine/nodes.h"
#include "server/engine/phase.h"
#include "server/engine/round_policy.h"
#include "server/log/record.h"

namespace macaw::server {

// The open (round, phase): its cohort, who is leased whom, what has been counted, what has gone
// wrong. Methods change it and return what is to be written down, if anything happened. Every
// client waits in the queue of its holding, so that an owner's clients cannot go to anybody else.
// Pure; one thread.
class OpenPhase {
 public:
  // Fences carry the server's epoch.
  explicit OpenPhase(uint32_t epoch) : fences_(epoch) {}

  // ---- from one to the next
  // The first phase of a round; seats by client.
  void OpenRound(Round round, std::vector<Seat> seats, TimePoint now);
  // The next phase, on the same clients but those that were given up. `versions`: of the states
  // that clients have kept in this round's phases, the newest of a client last.
  void OpenNext(std::span<const Attempt> versions, TimePoint now);
  // Its broadcast is there. Leases may begin once the queues are planned.
  log::RoundOpened Ready(fleet::Blob broadcast, const Digest& eligible, TimePoint now);
  // The waiting clients of each holding, and the queue to hand them out by.
  std::vector<scheduler::Cohort> Waiting() const;
  void Plan(HoldingId holding, scheduler::DispatchQueue queue);
  // What came of it, once the policy has let it close.
  PhaseReport Close(uint32_t slots, TimePoint now);

  // ---- leases
  struct Handout {
    std::optional<fleet::TrainingLease> lease;
    std::optional<log::Leased> record;  // if there is a lease
    bool when_idle = false;             // ask again only with a slot idle
    TimePoint look_again = TimePoint::max();
  };
  // A piece for the node. `wanted`: its idle slots. `avoid`: whom somebody else had better train;
  // they keep waiting.
  template <typename Avoid>
  Handout Take(const Node& node, uint32_t wanted, TimePoint expires, TimePoint now,
               const Avoid& avoid);
  void Renew(WorkerId node, TimePoint expires) { table_.Renew(node, expires); }
  std::vector<Attempt> NotHeld(WorkerId node, std::span<const Attempt> attempts) const {
    return table_.NotHeld(node, attempts);
  }
  // Each of these makes clients wait again. Nothing: nobody was concerned. Expire adds to `late`
  // whose leases ran out.
  std::optional<log::Requeued> Expire(TimePoint now, std::vector<WorkerId>& late);
  std::optional<log::Requeued> DropNode(WorkerId node, const std::string& why);
  std::optional<log::Requeued> Release(WorkerId node, std::span<const Attempt> attempts,
                                       const std::string& why);
  void RemoveFromPlan(const Node& node);

  // ---- parts
  absl::Status Judge(WorkerId node, std::span<const Attempt> attempts) const {
    return table_.Judge(node, attempts);
  }
  // After Judge said yes.
  log::Accepted Accept(const Node& node, uint64_t commit, const fleet::Part& part);
  void Adding() { ++adding_; }  // an accepted part is on its way into the sum
  void Added() { --adding_; }
  // Clients that the phase does without: waiting ones of these, by the server's decision.
  std::optional<log::GaveUp> DoWithout(const std::vector<log::GivenUp>& clients);

  // ---- as an earlier server left it
  // The client is leased, as it was then.
  void Restore(const Attempt& attempt, WorkerId node, TimePoint expires);

  const PhaseOrder& order() const { return order_; }
  Round round() const { return order_.round; }
  Phase phase() const { return order_.phase; }
  const fleet::Blob& broadcast() const { return broadcast_; }
  const std::vector<Seat>& seats() const { return seats_; }
  const Seat* Find(ClientId client) const;
  const PhaseReport& report() const { return report_; }
  Standing standing() const;
  bool adding() const { return adding_ > 0; }
  uint64_t leased_to(WorkerId node) const { return table_.leased_to(node); }
  bool waiting(HoldingId holding) const {
    return holding.value < queues_.size() && !queues_[holding.value].empty();
  }
  TimePoint NextExpiry() const { return table_.NextExpiry(); }

 private:
  void Open(Phase phase, TimePoint now);
  Seat& SeatOf(ClientId client);  // who must be in the cohort
  scheduler::DispatchQueue& QueueOf(HoldingId holding);
  std::optional<log::Requeued> Requeue(std::vector<Attempt> ended, std::string why);
  scheduler::Piece TakePiece(const Node& node, uint32_t wanted, TimePoint now);
  Handout LeaseOut(const Node& node, const scheduler::Piece& piece, TimePoint expires,
                   TimePoint now);
  void PutBack(HoldingId holding, const scheduler::CohortEntry& entry) {
    QueueOf(holding).PutBack(entry);
  }

  FenceSource fences_;
  PhaseOrder order_;
  std::vector<Seat> seats_;  // by client
  AttemptTable table_{{}};
  std::vector<scheduler::DispatchQueue> queues_;  // by holding
  fleet::Blob broadcast_;
  PhaseReport report_;
  std::vector<fleet::LeftOut> left_out_before_;  // by the round's earlier phases
  uint64_t adding_ = 0;
};

template <typename Avoid>
OpenPhase::Handout OpenPhase::Take(const Node& node, uint32_t wanted, TimePoint expires,
                                   TimePoint now, const Avoid& avoid) {
  scheduler::Piece piece = TakePiece(node, wanted, now);
  std::vector<scheduler::CohortEntry> kept;
  for (const scheduler::CohortEntry& entry : piece.clients) {
    // On trial one at a time.
    const bool take = (!node.on_trial || kept.empty()) && !avoid(entry.client);
    if (take) {
      kept.push_back(entry);
    } else {
      PutBack(node.holding, entry);
    }
  }
  piece.clients = std::move(kept);
  return LeaseOut(node, piece, expires, now);
}

}  // namespace macaw::server
