#pragma once

#include <map>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "algorithms/api/registry.h"
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

// Everything a run begins with: afresh, or as its newest checkpoint left it.
struct Opening {
  Options options;  // with the algorithm's defaults filled in
  EngineOptions engine;
  std::unique_ptr<scheduler::Scheduler> scheduler;
  ModelKeeper keeper;
  RunFolder folder;
  std::optional<MetricsRow> owed_row;  // its evaluation is still to be done, before any round
  double seconds_before = 0;           // spent by earlier sessions of the run
  EarlyStopping early_stopping;        // has seen the rows that are kept
  // Of a run that goes on inside a round: where the sums of its parts lie, and the rows of rounds
  // since the checkpoint that were evaluated, which need not be again.
  absl::flat_hash_map<Digest, JournalPlace> sums;
  std::map<Round, std::string> rows;
};

// Refuses what cannot run, and what would give another result than the run that it resumes. Writes
// the new epoch, fsynced, as its last act: a refusal leaves the folder as it was.
absl::StatusOr<Opening> Open(Options options, FlatVector initial,
                             const algorithms::Registry& registry);

}  // namespace macaw::server
