#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/simulate/planned_work.h"
#include "cli/timeline/virtual_trace.h"
#include "virtual_time/clock.h"

namespace macaw::cli {

// What a row of metrics.jsonl tells the virtual clock.
virtual_time::RoundFacts FactsOf(const nlohmann::ordered_json& row);

// Rounds first to last of a run with [devices]. `rows`: of metrics.jsonl, from round 1 on. The
// draws of the rounds are repeated, with the traffic that the rows tell. Where `most_turns` have
// been drawn, the rounds after that one are left out. kFailedPrecondition: a round takes other
// seconds than its row says, so the plan is not the run's.
absl::StatusOr<VirtualTrace> TraceOf(const TurnPlan& plan,
                                     const std::vector<nlohmann::ordered_json>& rows, Round first,
                                     Round last, uint64_t most_turns);

// The same of a run's folder, by its config.toml and its data. Errors say what is missing.
absl::StatusOr<VirtualTrace> TraceOfRun(const std::string& folder, Round first, Round last,
                                        uint64_t most_turns = 50'000);

}  // namespace macaw::cli
