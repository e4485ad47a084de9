#pragma once

#include <map>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "core/ids.h"
#include "plan/task.h"
#include "server/engine/evaluation_sums.h"
#include "server/leave_one_out.h"

namespace macaw::server {

// A line of contributions.jsonl: what the clients of a round have added to it, as lists that are
// parallel to the clients' numbers (docs/guides/contribution.md has the names). Nothing timed is in
// it, so equal runs have equal bytes.

// What is known once the round is closed, as one line of JSON.
std::string ContributionsOf(Round round, std::span<const WithoutClient> without);
// That line, with the metrics of the central test set without each client, and the difference to
// those with all of them. A client whose model was not evaluated has nulls.
std::string WithEvaluation(const std::string& line, const EvaluationSums& sums, TaskKind task);

// The lines of a file by round. What follows a line that is damaged is left out.
std::map<Round, std::string> ContributionLines(absl::string_view text);

}  // namespace macaw::server
