#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "core/ids.h"
#include "scheduler/placement.h"
#include "scheduler/plan.h"

namespace macaw::scheduler {

// A worker asks for work.
struct Ask {
  WorkerId worker;
  uint32_t slots = 1;
  uint32_t idle = 1;         // slots with nothing to do: 0 asks ahead, for when one will be
  double now = 0;            // seconds since the plan was made; never goes back
  double least_seconds = 0;  // a piece worth less than this costs more to ask for than to train
};
struct Piece {
  std::vector<CohortEntry> clients;  // in the order to train
  // Ask again only with a slot idle: what is left would start sooner elsewhere, or is so little
  // that it should not wait behind a running client.
  bool when_idle = false;
  // Nothing now, although clients are left: others are expected to finish them sooner. If none asks
  // before this time, ask again.
  double look_again = std::numeric_limits<double>::infinity();
};

// Hands a plan out piece by piece, as Plan::hand_out says. Guided: an asker gets a fraction of what
// remains in its queue, at least a client for each idle slot. What is not handed out is placed anew
// (placement.h), with busy slots free when their clients are expected to end: now and then while
// many clients are left, at each ask towards the end, and when the asker's queue is dry. A slot
// that would only delay the end then gets nothing. How long a worker's pieces really took this
// round corrects its costs, so that a wrong first guess or a machine that slows down is noticed
// within the round. Only clients that are not handed out are ever moved. Pure; one owner.
class DispatchQueue {
 public:
  DispatchQueue() = default;
  explicit DispatchQueue(const Plan& plan);

  // A worker that the plan does not know (it joined later) takes part with the mean costs of the
  // others. An empty piece of a queue that is not empty says when to look again.
  Piece Take(const Ask& ask);

  // Puts a client back (its lease ended without a result).
  void PutBack(const CohortEntry& entry);

  // A client that waits no more; nothing happens where it is not here.
  void Remove(ClientId client);

  // Hands a lost worker's queue to the others.
  void RemoveWorker(WorkerId worker);

  size_t size() const { return size_; }  // clients not handed out
  bool empty() const { return size_ == 0; }

 private:
  struct Slot {
    double start = 0;  // of what it was given last
    double free = 0;   // when that is expected to end; ≤ now: idle, or late
    double given = 0;  // planned seconds of it, before correction
  };
  struct Worker {
    WorkerInfo info;
    std::vector<Slot> slots;
    std::deque<CohortEntry> queue;  // longest first where guided
    double queued = 0;              // planned seconds of it
    double took = 0, planned = 0;   // seconds of finished pieces, in truth and as planned
  };

  Worker& Known(const Ask& ask);
  void Observe(Worker& worker, const Ask& ask);
  double Pace(const Worker& worker) const;
  double SecondsOn(const Worker& worker, const CohortEntry& entry) const;
  void Give(Worker& worker, const CohortEntry& entry, double now);
  CohortEntry PopFront(Worker& worker);

  Piece TakeWhole(Worker& worker);
  Piece TakeNext(const Worker& worker, const Ask& ask);
  Piece TakeGuided(Worker& worker, const Ask& ask);
  bool BalanceDue(const Worker& asker) const;
  void Balance(double now);
  Worker* LastToEnd();

  HandOut hand_out_ = HandOut::kGuided;
  std::map<WorkerId, Worker> workers_;
  std::deque<CohortEntry> common_;  // nobody's: kPull, all in order; else those that came back
  size_t slots_ = 0;
  size_t size_ = 0;
  size_t moved_ = 0;               // clients handed out or put back since the last balance
  double next_start_ = 0;          // at the last balance: the earliest start planned, now or later
  double mean_seconds_ = 0;        // planned, of a client
  double took_ = 0, planned_ = 0;  // over all workers
};

}  // namespace macaw::scheduler
