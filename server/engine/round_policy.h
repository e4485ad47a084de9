#pragma once

#include <cstdint>
#include <memory>

#include "core/ids.h"

namespace macaw::server {

// How far the open phase is.
struct Standing {
  uint64_t cohort = 0;
  uint64_t waiting = 0, leased = 0;    // clients still to be had
  uint64_t counted = 0, given_up = 0;  // clients that are settled
};

// What a node says about a client of the open round that is not about the client's own training.
struct Trouble {
  enum class Kind : uint8_t {
    kDied,             // the client was being trained when the node's process died
    kStateUnreadable,  // the node cannot read the client's state
  };
  Kind kind = Kind::kDied;
  ClientId client;
  uint32_t times = 0;       // that it was said in this round
  uint32_t nodes = 0;       // different ones that said so
  uint32_t candidates = 0;  // nodes that are there and could train the client
  bool owned = false;       // the client belongs to one node, which alone can train it
};

enum class Remedy : uint8_t { kTryAgain, kGiveUpClient, kEndRun };

// What a run decides where nodes must not: when a phase closes, and what follows from trouble. No
// node can end a run alone while another one could do its work.
class RoundPolicy {
 public:
  virtual ~RoundPolicy() = default;
  // Asked whenever something was settled. True only with nobody waiting or leased.
  virtual bool MayClose(const Standing& standing) const = 0;
  virtual Remedy OnTrouble(const Trouble& trouble) const = 0;
  // Whether a run of `rounds` goes on after so many rounds in a row that lost every client.
  virtual bool GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const = 0;
};

// A round counts every client of its cohort or gives it up. A client that an owner cannot train is
// given up for the round. One that any node can train stops the run when several nodes, or the only
// one, have the same trouble with it: the data, the program or a disk is broken, and every round
// would find it so.
class CompleteRounds final : public RoundPolicy {
 public:
  struct Limits {
    uint32_t deaths = 3;       // of one client's workers in one round
    uint32_t lost_rounds = 5;  // in a row; of a shorter run all of them
  };
  CompleteRounds() = default;
  explicit CompleteRounds(const Limits& limits) : limits_(limits) {}
  bool MayClose(const Standing& standing) const override;
  Remedy OnTrouble(const Trouble& trouble) const override;
  bool GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const override;

 private:
  Limits limits_;
};

}  // namespace macaw::server
