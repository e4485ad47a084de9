#pragma once

#include <map>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "core/vector.h"
#include "scheduler/plan.h"
#include "server/coordinator.h"
#include "server/early_stopping.h"
#include "server/engine/round_engine.h"
#include "server/journal/journal.h"
#include "server/metrics.h"
#include "server/model_keeper.h"
#include "server/run_folder.h"

namespace macaw::server {

// Everything that a run begins with, whether it is new or resumed from its newest checkpoint.
struct Opening {
  Options options;  // with the algorithm's defaults filled in
  EngineOptions engine;
  Restored restored;  // of a run that continues inside a round
  std::unique_ptr<scheduler::Scheduler> scheduler;
  ModelKeeper keeper;
  // The server half may sum what clients keep. Where it does not begin anew
  // (algorithms::BeginsAnew), the sum keeps what is lost.
  bool sums_states = false;
  RunFolder folder;
  std::optional<MetricsRow> owed_row;  // its evaluation must be done before any round
  std::string owed_contributions;      // likewise: of contributions.jsonl; empty: none
  double seconds_before = 0;           // spent by earlier sessions of the run
  EarlyStopping early_stopping;        // has observed the rows that are kept
  // Only for a run that continues inside a round. sums: where the sums of its parts lie. rows: the
  // rows of rounds since the checkpoint whose evaluation is done and is not repeated.
  // contributions: the lines of contributions.jsonl of these rounds.
  absl::flat_hash_map<Digest, JournalPlace> sums;
  std::map<Round, std::string> rows, contributions;
};

// What a server refuses of a run before it has workers: an algorithm that is not made for the run,
// evaluations that cannot be made, rounds that its cohorts cannot have, a stop rule that can never
// end it, rounds that close with fewer clients than the algorithm needs.
absl::Status CheckPlan(const RunPlan& run, const ServerConfig& config, const LayoutPtr& layout,
                       const algorithms::Registry& registry);

// Digest of everything that decides a result (log::RunOpened::configuration).
Digest DigestOfRun(const RunPlan& run);

// Returns an error if the run cannot run, or if it would give another result than the run that it
// resumes. Writes and fsyncs the new epoch as its last step, so an error leaves the folder
// unchanged. Only base.safetensors of a run with frozen tensors follows.
absl::StatusOr<Opening> Open(Options options, FlatVector initial,
                             const algorithms::Registry& registry);

}  // namespace macaw::server
