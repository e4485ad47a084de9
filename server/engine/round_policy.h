#pragma once

#include <cstdint>
#include <memory>

#include "core/ids.h"

namespace macaw::server {

// The progress of the open phase, in clients.
struct Standing {
  uint64_t cohort = 0;
  uint64_t waiting = 0, leased = 0;    // not settled yet
  uint64_t counted = 0, given_up = 0;  // settled
};

// A node's report of a failure with a client of the open round that lies outside the client's own
// training.
struct Trouble {
  enum class Kind : uint8_t {
    kDied,             // the client was being trained when the node's process died
    kStateUnreadable,  // the node cannot read the client's state
  };
  Kind kind = Kind::kDied;
  ClientId client;
  uint32_t times = 0;       // how often it was reported in this round
  uint32_t nodes = 0;       // how many different nodes reported it
  uint32_t candidates = 0;  // registered nodes that could train the client
  bool owned = false;       // the client has an owner, and only this node can train it
};

enum class Remedy : uint8_t { kTryAgain, kGiveUpClient, kEndRun };

// Decides when a phase closes and what follows from trouble. Nodes must not decide this: no node
// can end a run alone while another node could do its work.
class RoundPolicy {
 public:
  virtual ~RoundPolicy() = default;
  // Called whenever a client was settled. May return true only if no client is waiting or leased.
  virtual bool MayClose(const Standing& standing) const = 0;
  virtual Remedy OnTrouble(const Trouble& trouble) const = 0;
  // Whether a run of `rounds` rounds continues after `in_a_row` rounds in a row lost every client.
  virtual bool GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const = 0;
};

// A round counts every client of its cohort or gives it up. A client that its owner cannot train is
// given up for the round. A client that any node can train ends the run when several nodes, or the
// only node, have the same trouble with it: then the data, the program or a disk is broken, and
// every later round would fail in the same way.
class CompleteRounds final : public RoundPolicy {
 public:
  struct Limits {
    uint32_t deaths = 3;       // workers that died while training one client, in one round
    uint32_t lost_rounds = 5;  // in a row; a shorter run ends when all its rounds were lost
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
