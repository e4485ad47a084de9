#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "core/clock.h"
#include "core/ids.h"
#include "core/vector.h"
#include "plan/run_plan.h"
#include "proto/admin/handler.h"
#include "proto/fleet/link.h"
#include "server/config.h"
#include "server/log/history.h"
#include "virtual_time/devices.h"

namespace macaw::server {

// From the name of a client to that of the node that owns it.
using ClientOwners = absl::flat_hash_map<std::string, std::string>;

struct Options {
  RunPlan run;
  ServerConfig config;          // `out` is not read here: the folder is run_dir
  std::string settings = "{}";  // what differs from the defaults, for summary.json: a JSON object
  std::string inputs = "{}";    // likewise, digests of files by key
  // Each round but the session's first waits for GoOnTo or StopHere, and so does the end. The model
  // of each round is in the folder before the round's row is (round_model.h).
  bool stepwise = false;
  std::string program = "macaw-server";  // with its version, for operators and nodes
  std::string run_dir;  // must exist and be writable; all files of the run go there
  bool resume = false;  // from run_dir's newest checkpoint; if false, it must hold none
  // Only for a resumed run: these clients lose their states and start without one.
  std::vector<ClientId> reset_states;
  // replays: the run_id of the run that this one repeats; zero: none. decisions: what was decided
  // in the rounds of that run, and so in this one. config.round then has no effect.
  Digest replays;
  log::Decisions decisions;
  // log::RunOpened::keeps_places: of a simulation, or of the run that this one repeats. A resumed
  // run has that of its first session.
  bool keeps_places = false;
  // Filled in by Open, for a private run whose budget ends before its rounds (budget.h).
  uint32_t stop_after = 0;
  std::string stop_reason;
  // The model is evaluated after these rounds, too, as a run has done that went on after its last
  // one. run.stop does not look at them.
  std::set<Round> evaluate_after;
  // Of a run with [devices]: the clients' devices, and when they are there; null: none.
  std::shared_ptr<const virtual_time::Devices> devices;
  std::shared_ptr<const virtual_time::Presence> presence;
  // Called on the writer's thread before a checkpoint is written. Makes durable what the checkpoint
  // refers to but other processes have written (client states on this host). An error ends the run.
  std::function<absl::Status()> before_checkpoint;
  // Called on the writer's thread with each finished row of metrics.jsonl (a JSON object in one
  // line), just before it is written.
  std::function<void(const std::string& row)> on_row;
  // Called on the same thread with what a user should know of the run's results, once each.
  std::function<void(const std::string& warning)> on_warning;
  // The nodes to which a registry has entered clients, by the clients' names, at this moment; null:
  // there is no registry. Another node may not bring a client of such a name. Thread-safe.
  std::function<absl::StatusOr<std::shared_ptr<const ClientOwners>>()> owners;
};

// Whether the model is evaluated after the round: where evaluation.every or
// evaluation.leave_one_out asks for it, after the last round, and after those of evaluate_after.
bool EvaluationDue(const Options& options, Round round);

struct Outcome {
  // kSuspended: the open round and all sessions are on disk; the next server goes on with them.
  enum class Kind : uint8_t { kFinished, kStopped, kInterrupted, kSuspended };
  Kind kind = Kind::kFinished;
  uint32_t rounds = 0;  // completed rounds, including those of earlier sessions of the run
  std::string reason;   // of kStopped, as a text for the user
  std::string warning;  // what could not be kept of a run whose result is whole; empty: nothing
};

// Runs the rounds. It owns the engine's thread and all files of the run, and answers every call of
// the fleet. Workers reach it through wire::FleetServer, or in tests through a LocalLink. All
// methods are thread-safe.
class Coordinator : public fleet::FleetHandler {
 public:
  // `initial` is the model before round 1; a resume replaces it. Writes and fsyncs the new epoch
  // before it returns. OutOfRange: the run is over, so a resume has nothing to do. `registry` must
  // outlive the coordinator.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(Options options, FlatVector initial,
                                                            const algorithms::Registry& registry);

  // Blocks until the run is over. An error names what failed. The run folder is then as after a
  // crash, and the run can be resumed. The folder's log says that the run is over after everything
  // else has been written.
  virtual absl::StatusOr<Outcome> Wait() = 0;

  // Drops the open round, writes a checkpoint of the last complete round, and ends with
  // kInterrupted. While rounds that an earlier server had closed are done again it is Suspend.
  // Thread-safe.
  virtual void Interrupt() = 0;

  // Stops as a crash would, once everything that was answered is on disk, and ends with kSuspended:
  // a server that is started again goes on inside the round, and workers keep their sessions.
  // Without durable commits it is Interrupt. Thread-safe.
  virtual void Suspend() = 0;

  // Of a stepwise run: rounds up to this one may be done, or the run ends where it waits, as by a
  // stop rule, with this reason. Thread-safe.
  virtual void GoOnTo(Round round) = 0;
  virtual void StopHere(std::string reason) = 0;

  // Calls `then` on the engine's thread, after everything that was posted to it before. A thread
  // that hangs never calls it.
  virtual void AskEngine(absl::AnyInvocable<void() &&> then) = 0;

  // What operators see and ask for. Outlives no call: end every caller before the coordinator.
  virtual admin::AdminHandler& operations() = 0;
};

}  // namespace macaw::server
