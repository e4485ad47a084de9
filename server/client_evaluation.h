#pragma once

#include <string>

#include "plan/run_plan.h"
#include "server/engine/evaluation_sums.h"

namespace macaw::server {

// What clients_evaluated.json holds after an evaluation: each client's metrics, as lists that are
// parallel to its numbers, by the columns' beginnings:
//   {"round": 200, "clients_test": {"client": [0, 1], "rows": [12, 7], "accuracy": [0.9, 0.8], …}}
// Metrics are those of the task (training/api/metrics.h), and null where undefined. Clients without
// rows are left out. Of a rule with several models also "model", which each client chose. "": no
// client was evaluated. Thread-safe.
std::string ClientEvaluationText(const EvaluationSums& sums, TaskKind task,
                                 bool several_models = false);

}  // namespace macaw::server
