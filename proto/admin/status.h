#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What an operator sees of a run, as values. The engine's thread fills them in on request.
namespace macaw::admin {

enum class RunState : uint8_t {
  kWaiting = 1,  // for nodes, before the first round
  kRunning = 2,
  kPausing = 3,   // the open round is still collecting
  kPaused = 4,    // between two rounds
  kDraining = 5,  // the open round is still collecting; then the run ends
  kEnding = 6,    // the rounds are done; what is left is evaluated
  kEnded = 7,
};
const char* NameOf(RunState state);  // "waiting", "running", …

// What the server does at this moment.
enum class Step : uint8_t {
  kGathering = 1,   // nodes register
  kPreparing = 2,   // the broadcast is encoded
  kTraining = 3,    // clients are leased and their parts come in
  kApplying = 4,    // the algorithm moves the model
  kEvaluating = 5,  // no round is open, and an evaluation is
  kIdle = 6,        // no round is open, and nothing is to be done
  kAwaiting = 7,    // too few clients are present for the next round
};
const char* NameOf(Step step);

struct NodeStatus {
  std::string name;
  std::string program;  // "macaw-worker 0.1.0"
  uint32_t slots = 0;
  uint64_t clients = 0;       // whose rows it has
  bool owner = false;         // nobody else may bring these clients
  bool waits = false;         // it has asked for work and there is none
  bool on_trial = false;      // its leases ran out; it gets one client at a time
  double silent_seconds = 0;  // since its last call or heartbeat
  bool late = false;          // several heartbeats of it have not come (server/waits_for.h)
  uint64_t leased = 0;        // clients of the open phase that it holds
  uint64_t memory_bytes = 0;  // the most that it has reported
  uint64_t sent_bytes = 0, received_bytes = 0;  // in its session, as it reports
  std::string doing;                            // "trains 3 clients", "waits for work", …
  friend bool operator==(const NodeStatus&, const NodeStatus&) = default;
};

// Clients of the open phase that no registered node can train.
struct Missing {
  std::string owner;  // of these clients; empty: they are nobody's in particular
  uint64_t clients = 0;
  friend bool operator==(const Missing&, const Missing&) = default;
};

struct Quarantined {
  std::string node;
  std::string by, reason;
  friend bool operator==(const Quarantined&, const Quarantined&) = default;
};

struct RunStatus {
  std::string run;
  uint32_t epoch = 0;  // how many servers have been started for the run
  RunState state = RunState::kWaiting;
  Step step = Step::kGathering;
  uint32_t round = 0;            // the open round, or the last one; 0: none yet
  uint32_t phase = 0;            // of the open round
  uint32_t rounds = 0;           // of the whole run
  uint32_t completed = 0;        // rounds
  double step_seconds = 0;       // since the step began; 0 where that is not kept
  double seconds = 0;            // spent on the run, in all sessions
  double lease_seconds = 0;      // of silence, after which a lease ends
  double heartbeat_seconds = 0;  // between two heartbeats, as nodes are asked to send them
  std::string ended;             // kEnded: how ("finished", …)
  std::string ending_reason;     // why it ends, or ended, where there is a reason

  // The clients of the open phase.
  uint64_t cohort = 0, waiting = 0, leased = 0, counted = 0, given_up = 0;
  uint64_t requeued = 0;  // leases of this phase that ended without a result
  std::vector<Missing> missing;

  uint32_t evaluated_round = 0;  // whose model is evaluated; 0: none is
  uint64_t evaluation_tasks = 0, evaluation_done = 0;

  uint32_t nodes_wanted = 0;    // the first round begins with so many
  uint64_t clients_wanted = 0;  // and so many clients; 0: any number
  uint64_t clients_known = 0;
  std::vector<NodeStatus> nodes;  // in the order in which they registered
  std::vector<Quarantined> quarantine;

  // Since this server was started.
  uint64_t nodes_lost = 0;         // nodes that were silent for too long, or were replaced
  uint64_t parts_turned_down = 0;  // of nodes: wrong ones, and ones that came too late

  std::string latest_row;     // of metrics.jsonl, a JSON object; empty: none in this session
  uint64_t memory_bytes = 0;  // of the server, the most so far
  uint64_t disk_free = 0;     // bytes, where the run's folder is
  std::string program;        // "macaw-server 0.1.0"
  std::string waits_for;      // one sentence (server/waits_for.h)
  friend bool operator==(const RunStatus&, const RunStatus&) = default;
};

// The status as a JSON object, and as the line of a log or of a web page needs it: text that is not
// UTF-8 is replaced.
std::string JsonOf(const RunStatus& status);

}  // namespace macaw::admin
