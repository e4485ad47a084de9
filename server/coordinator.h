#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/registry.h"
#include "core/clock.h"
#include "core/vector.h"
#include "plan/run_plan.h"
#include "proto/fleet/link.h"
#include "server/config.h"
#include "server/log/history.h"

namespace macaw::server {

struct Options {
  RunPlan run;
  ServerConfig config;          // `out` is not read here: the folder is run_dir
  std::string settings = "{}";  // what differs from the defaults, for summary.json: a JSON object
  std::string run_dir;          // exists and is writable; everything a run leaves behind goes there
  bool resume = false;          // from run_dir's newest checkpoint; else it must not hold any
  // Of a resumed run: these clients give their state up and start afresh.
  std::vector<ClientId> reset_states;
  // Repeats the run with this name: whom its rounds did without is not trained here either.
  Digest replays;
  log::Decisions given_up;
  // Called on the writer's thread before a checkpoint is written: makes durable what it will name
  // and others have written (client states on this host). An error ends the run.
  std::function<absl::Status()> before_checkpoint;
  // Called on the writer's thread with each finished row of metrics.jsonl (a JSON object in one
  // line), just before it is written.
  std::function<void(const std::string& row)> on_row;
};

struct Outcome {
  enum class Kind : uint8_t { kFinished, kStopped, kInterrupted } kind = Kind::kFinished;
  uint32_t rounds = 0;  // completed in all, earlier sessions of a resumed run included
  std::string reason;   // of kStopped, for people
};

// Runs the rounds: owns the engine's thread, everything the run keeps on disk, and the answers to
// every call of the fleet. Give it to wire::FleetServer (or, in tests, a LocalLink) to be reached.
class Coordinator : public fleet::FleetHandler {
 public:
  // `initial` is the model before round 1; a resume replaces it. Writes the new epoch, fsynced,
  // before it returns. `registry` must outlive the coordinator.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(Options options, FlatVector initial,
                                                            const algorithms::Registry& registry);

  // Blocks until the run is over. An error names what failed; the run folder is then as after a
  // crash: resumable.
  virtual absl::StatusOr<Outcome> Wait() = 0;

  // Drops the open round, writes a checkpoint of the last whole one, and ends with kInterrupted.
  // Thread-safe.
  virtual void Interrupt() = 0;
};

}  // namespace macaw::server
