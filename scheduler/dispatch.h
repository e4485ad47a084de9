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

// A worker's request for work.
struct Ask {
  WorkerId worker;
  uint32_t slots = 1;
  uint32_t idle = 1;  // slots without work; 0: the worker asks ahead, before a slot becomes idle
  double now = 0;     // seconds since the plan was made; never decreases
  // A piece of less work than this would cost more to request than to train.
  double least_seconds = 0;
};
struct Piece {
  std::vector<CohortEntry> clients;  // in the order to train
  // The worker should ask again only when a slot is idle: what remains would start sooner
  // elsewhere, or is so little that it should not wait behind a running client.
  bool when_idle = false;
  // If the piece is empty although clients remain, other workers are expected to finish them
  // sooner. Ask again at this time, if they have not been handed out by then.
  double look_again = std::numeric_limits<double>::infinity();
};

// Hands out a plan piece by piece, in the way that Plan::hand_out says. With kGuided, a worker gets
// a fraction of its remaining queue, at least one client for each idle slot; a worker that is alone
// gets a second's work. Clients that are not handed out are planned anew (placement.h), assuming
// that busy slots become free when their clients are expected to end, and that a slot which has not
// asked for a while will not ask soon: from time to time while many clients remain, at each request
// towards the end, and when the worker's queue is empty. A slot that would only delay the end gets
// nothing.
// The times that a worker reports in this round correct its costs, so a wrong prediction or a
// machine that slows down is noticed within the round. A client that was handed out is never moved.
// No I/O and no clock; one owner.
class DispatchQueue {
 public:
  DispatchQueue() = default;
  explicit DispatchQueue(const Plan& plan);

  // A worker that joined after the plan was made takes part with the mean costs of the others. If
  // the returned piece is empty and clients remain, it says when to ask again.
  Piece Take(const Ask& ask);

  // Puts a client back whose lease ended without a result.
  void PutBack(const CohortEntry& entry);

  // Removes a client that no longer waits. Does nothing if it is not here.
  void Remove(ClientId client);

  // Gives a lost worker's queue to the others.
  void RemoveWorker(WorkerId worker);

  size_t size() const { return size_; }  // clients not handed out
  bool empty() const { return size_ == 0; }

 private:
  struct Slot {
    double start = 0;  // when it was last given work
    double free = 0;   // when that work is expected to end; ≤ now: idle, or late
    double given = 0;  // planned seconds of that work, before correction
  };
  struct Worker {
    WorkerInfo info;
    std::vector<Slot> slots;
    std::deque<CohortEntry> queue;  // with kGuided, longest first
    double queued = 0;              // planned seconds of it
    double took = 0, planned = 0;   // seconds of finished pieces: real, and as planned
  };

  Worker& Known(const Ask& ask);
  void Observe(Worker& worker, const Ask& ask);
  double Pace(const Worker& worker) const;
  double SecondsOn(const Worker& worker, const CohortEntry& entry) const;
  void Give(Worker& worker, const CohortEntry& entry, double now);
  CohortEntry PopFront(Worker& worker);
  CohortEntry PopBack(Worker& worker);
  // Whether no times of the worker are known, where those of others are, and it has no client.
  static bool IsUntried(const Worker& worker);

  Piece TakeWhole(Worker& worker, const Ask& ask);
  Piece TakeNext(const Worker& worker, const Ask& ask);
  Piece TakeGuided(Worker& worker, const Ask& ask);
  bool BalanceDue(const Worker& asker) const;
  void Balance(double now);
  Worker* LastToEnd();

  HandOut hand_out_ = HandOut::kGuided;
  double uncollected_ = 0;  // Plan's
  std::map<WorkerId, Worker> workers_;
  // Belongs to no worker: with kPull all clients in order, else those that came back.
  std::deque<CohortEntry> common_;
  size_t slots_ = 0;
  size_t size_ = 0;
  size_t moved_ = 0;               // clients handed out or put back since the last new plan
  double next_start_ = 0;          // the earliest planned start at the last new plan, now or later
  double mean_seconds_ = 0;        // planned, per client
  double took_ = 0, planned_ = 0;  // over all workers
};

}  // namespace macaw::scheduler
