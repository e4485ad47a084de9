#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/ids.h"
#include "plan/quorum.h"
#include "plan/run_plan.h"

namespace macaw::server {

// The progress of the open phase, in clients.
struct Standing {
  uint64_t drawn = 0;  // in the round's first phase
  uint64_t cohort = 0;
  uint64_t waiting = 0, leased = 0;    // not settled yet
  uint64_t counted = 0, given_up = 0;  // settled
  // Of an ArrivalStep: leased clients that have trained and count in this round.
  uint64_t arriving = 0;
  bool overdue = false;  // the phase's deadline has passed

  bool complete() const { return waiting == 0 && leased == 0; }
};

// What to do with the open phase.
enum class Course : uint8_t {
  kWait,
  kClose,            // every client is settled
  kCloseAtDeadline,  // the clients that are missing are too late
  kCloseWithEnough,  // the clients that are missing are not needed
  kDropRound,        // too few clients were counted: none of them counts
};

// A node's report of a failure with a client of the open round that lies outside the client's own
// training.
struct Trouble {
  enum class Kind : uint8_t {
    kDied,             // the client was being trained when the node's process died
    kStateUnreadable,  // the node cannot read the client's state
    kLeftOut,          // the node has left the client out of its part
  };
  Kind kind = Kind::kDied;
  ClientId client;
  uint32_t times = 0;       // how often it was reported in this round
  uint32_t nodes = 0;       // how many different nodes reported it
  uint32_t candidates = 0;  // registered nodes that could train the client
  bool owned = false;       // the client has an owner, and only this node can train it
};

enum class Remedy : uint8_t {
  kTryAgain,
  kGiveUpClient,  // for the round
  kLoseState,     // the client goes on without its state
  kEndRun,
};

// Decides when a phase closes and what follows from trouble. Nodes must not decide this: no node
// can end a run alone while another node could do its work.
class RoundPolicy {
 public:
  virtual ~RoundPolicy() = default;
  // Called whenever a client was settled, and when the deadline has passed. Does not return kClose
  // while a client is waiting or leased.
  virtual Course Decide(const Standing& standing) const = 0;
  virtual Remedy OnTrouble(const Trouble& trouble) const = 0;
  // Whether a run of `rounds` rounds continues after `in_a_row` rounds in a row lost every client.
  virtual bool GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const = 0;
};

// A round counts every client of its cohort or gives it up. A client that its owner cannot train is
// given up for the round. A client whose owner cannot read its state goes on without it. A client
// that any node can train ends the run when several nodes, or the
// only node, have the same trouble with it: then the data, the program or a disk is broken, and
// every later round would fail in the same way. A client that a node leaves out is given up if its
// owner says so, if two nodes do, or if no other node can train it.
class CompleteRounds : public RoundPolicy {
 public:
  struct Limits {
    uint32_t deaths = 3;  // workers that died while training one client, in one round
    // In a row; a shorter run ends when all its rounds were lost. 0: none.
    uint32_t lost_rounds = 5;
  };
  CompleteRounds() = default;
  explicit CompleteRounds(const Limits& limits) : limits_(limits) {}
  Course Decide(const Standing& standing) const override;
  Remedy OnTrouble(const Trouble& trouble) const override;
  bool GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const override;

 private:
  Limits limits_;
};

// When a round may end without all its clients ([round]).
struct RoundRules {
  enum class BelowQuorum : uint8_t { kExtend, kDrop };
  double deadline = 0;  // seconds after a phase opened; 0: none
  double quorum = 1;    // share of the round's cohort that must be counted
  uint64_t enough = 0;  // close as soon as so many clients are counted; 0: all
  BelowQuorum below_quorum = BelowQuorum::kExtend;
  // Only clients are drawn whose nodes have been heard within so many seconds; 0: all clients.
  double present_within = 0;

  // The number of clients that must be counted.
  uint64_t Needed(uint64_t drawn) const { return NeededOf(quorum, drawn); }
};

// When a live ArrivalStep closes (phase.h), for whoever counts by then:
//   counted = arrivals           closes; others train on
//   deadline, quorum of these    closes; arriving clients are given up (kCloseAtDeadline)
//   nobody trains                closes
// It does not close before the clients that are arriving are settled, unless the deadline passes.
Course DecideStep(const RoundRules& rules, uint64_t arrivals, const Standing& standing);

// Refuses the sampling whose chances the use of `keys` would change ("poisson").
absl::Status CheckChance(const CohortConfig& cohort, absl::string_view keys);

// Refuses a round.enough that no round reaches. A cohort.size of 0 is not known yet.
// Inline, as a worker's configuration asks for it, too, and a worker has no engine.
inline absl::Status CheckEnough(const CohortConfig& cohort, const RoundRules& rules) {
  if (cohort.size == 0 || rules.enough <= cohort.size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("round.enough = ", rules.enough,
                                                 " ends no round: at most ", cohort.size,
                                                 " clients count in one (cohort.size)"));
}

// Refuses rules that a round of this cohort cannot have, and cohorts that cannot be. Errors name
// the keys.
absl::Status CheckRounds(const CohortConfig& cohort, const RoundRules& rules);

// Refuses what a fleet whose rounds do not wait for each other (plan/real_arrivals.h)
// cannot have. Errors name the keys. `stateful`: its clients keep a state between rounds.
absl::Status CheckLiveSteps(const RunPlan& run, const RoundRules& rules, bool stateful);

// Rounds that do not wait for everybody.
//   counted = enough             closes at once
//   deadline, quorum counted     closes without the missing clients
//   deadline, below the quorum   waits until the quorum is counted, or drops the round
// If no client is missing, the round closes; with kDrop only if the quorum is counted.
class TimelyRounds final : public CompleteRounds {
 public:
  TimelyRounds(const Limits& limits, const RoundRules& rules)
      : CompleteRounds(limits), rules_(rules) {}
  Course Decide(const Standing& standing) const override;

 private:
  const RoundRules rules_;
};

}  // namespace macaw::server
