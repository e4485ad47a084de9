#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "plan/run_plan.h"
#include "proto/fleet/messages.h"
#include "server/engine/roster.h"
#include "server/engine/version_index.h"

// An evaluation cut into tasks. The cut depends on the configuration, the rows and the round only,
// and so does the order of its tasks. Pure.
namespace macaw::server {

// Tasks that need the same rows: the central ones, or those of a holding's clients.
using EvaluationQueue = StrongId<struct EvaluationQueueTag, uint32_t>;
constexpr EvaluationQueue CentralQueue() { return EvaluationQueue(0); }
constexpr EvaluationQueue QueueOf(HoldingId holding) { return EvaluationQueue(holding.value + 1); }

struct CutTask {
  fleet::EvaluationTask task;
  EvaluationQueue queue;
  bool heldout = false;                // the client's columns are apart
  size_t of = 0;                       // 0: the round's model; n: without the n-th client
  std::optional<uint32_t> group = {};  // of the client, of evaluation.groups
};

// What decides about a cut beside the configuration.
struct CutOptions {
  Round round{};
  bool personal_models = false;  // the rule has models of clients' own beside the common one
  uint64_t seed = 0;             // the run's, for config.sample
  uint32_t groups = 1;           // of concept shift
  bool backdoor = false;         // the central test rows also with the trigger of the attack
};

// The tasks of the round's model: chunks of config.chunk rows of the central sets, as each group of
// concept shift sees them, and of each client's training rows; one task for all test rows or all
// validation rows of a client. config.sample draws among the clients with such rows. The test and
// validation rows of `hostile` clients are left out.
std::vector<CutTask> CutEvaluation(const EvaluationConfig& config, const CutOptions& options,
                                   const Roster& roster, const HostileClients& hostile);
// The central test set, as each of the groups sees its `rows` rows, with a model (CutTask::of).
std::vector<CutTask> CutCentralTest(const EvaluationConfig& config, uint32_t groups, uint64_t rows,
                                    size_t of);
// The digests of a run's client states: a task for each range of clients of a holding.
std::vector<CutTask> CutStates(const VersionIndex& versions, const Roster& roster);

}  // namespace macaw::server
