#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "plan/run_plan.h"
#include "proto/fleet/link.h"
#include "training/backends.h"
#include "worker/acceptance.h"
#include "worker/phase.h"
#include "worker/worker.h"

namespace macaw::worker {

// A run as this node sees it: whether it can be trained here, what it asks of the node, and what a
// registration fixes (RunContext). Errors say what this node lacks.

// Both sides run the code of a plug-in. Different bytes under one name would be two algorithms in
// one run.
absl::Status CheckPlugins(const std::vector<std::string>& wanted,
                          const std::vector<std::string>& loaded);

// The numeric profile of the trainers that the run gets here. An error says what this node lacks to
// train it. If the server does not say what it runs, this is the profile of the fused back end.
absl::StatusOr<NumericProfile> ProfileFor(const std::optional<RunPlan>& run,
                                          const data::DatasetInfo& info, const Options& options,
                                          const algorithms::Registry& registry,
                                          training::Backends& backends);

absl::StatusOr<algorithms::Schema> SchemaOf(const RunPlan& run, const models::ModelSpec& spec,
                                            const algorithms::Registry& registry);

absl::StatusOr<RunContext> MakeRunContext(const Options& options,
                                          const fleet::RegisterReply& registration,
                                          const algorithms::Registry& registry,
                                          training::Backends& backends);

// What the first phase of a round asks. Later phases move as much or less, and are asked for anew.
absl::StatusOr<Demand> DemandOf(const models::ModelSpec& spec, const algorithms::Schema& schema,
                                const data::Dataset& dataset);

}  // namespace macaw::worker
