#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/fleet/messages.h"
#include "server/engine/round_policy.h"
#include "server/engine/ticket.h"
#include "server/log/history.h"

// The workers of engine_world.h.
namespace macaw::server {

// What a worker does beside what can happen to any.
enum class Vice : uint8_t {
  kNone,
  kLeaves,           // at some time, and for ever
  kHolds,            // commits nothing, and says that it makes progress
  kFails,            // leaves out every client
  kHoldsEvaluation,  // trains, and never reports an evaluation
};

// A worker as the engine sees it. Without a vice it is honest, but it may stall, die, repeat calls
// or return late.
struct FakeWorker {
  std::string name;
  Vice vice = Vice::kNone;
  uint64_t incarnation = 1;
  bool gone = false;  // for ever
  SessionId session{};
  bool registered = false;
  bool asleep = false;
  std::optional<Ticket> poll;
  Round round{};
  Phase phase{};
  Digest broadcast;
  std::vector<fleet::Assignment> held;
  std::vector<fleet::EvaluationTask> tasks;
  Round evaluated{};
  uint64_t commit_id = 0;
  std::optional<std::pair<Ticket, fleet::CommitRequest>> sent;  // not yet answered
  std::optional<fleet::CommitRequest> last;                     // for repeats
};

// How the clients are divided among the workers.
enum class Division : uint8_t {
  kShared,  // every worker has all of them
  kOwned,   // each worker owns four; the last has the other clients and the test set
};
inline constexpr uint64_t kOwned = 4;

// How rounds end: without all clients, or as in a run that is repeated.
struct Ends {
  RoundRules rules;
  log::Decisions decisions;
  bool vices = false;            // of workers; an operator gives such workers up in the end
  bool volatile_states = false;  // owners keep them in memory
  bool sums_states = false;      // the algorithm sums what clients keep
  bool early() const {
    return rules.deadline > 0 || rules.enough > 0 || rules.present_within > 0 ||
           !decisions.empty() || vices;
  }
};

}  // namespace macaw::server
