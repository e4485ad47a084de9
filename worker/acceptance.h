#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/settings/section.h"
#include "plan/run_plan.h"

namespace macaw::worker {

// What a node's owner lets it be used for. Nothing set: any run.
struct AcceptConfig {
  std::vector<std::string> algorithms;  // names of rules
  std::vector<std::string> models;      // names of models; "layers" for those given by their layers
  uint64_t max_parameters = 0;          // of the model; 0: any number
  uint64_t max_steps = 0;               // local steps of a client's turn; 0: any number
};

// The keys of [accept], with full names.
settings::Section<AcceptConfig> AcceptSection();

// The local steps of a stage over `rows` rows.
uint64_t NominalSteps(const LocalConfig& local, uint64_t rows);

// Whether the owner accepts the run. `parameters`: of its model; `rows`: of the node's largest
// client. kPermissionDenied names the key that does not let it in, and what the run has.
absl::Status CheckAccepted(const AcceptConfig& accept, const RunPlan& run, uint64_t parameters,
                           uint64_t rows);

}  // namespace macaw::worker
