#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/ids.h"
#include "plan/task.h"
#include "server/engine/evaluation_sums.h"
#include "server/engine/model_without.h"
#include "server/leave_one_out.h"
#include "server/unlearning.h"

namespace macaw::server {

// A line of contributions.jsonl: what the clients of a round have added to it, as lists that are
// parallel to the clients' numbers (docs/guides/contribution.md has the names). Nothing timed is in
// it, so equal runs have equal bytes.

// What is known once the round is closed, as one line of JSON. The lists about models of
// evaluation.unlearn, whose names begin with "unlearned_", are parallel to each other.
std::string ContributionsOf(Round round, std::span<const WithoutClient> without,
                            std::span<const UnlearnedModel> unlearned = {});
// That line, with the metrics of the central test set without each client, and (of one round) the
// difference to those with all of them. A client whose model was not evaluated has nulls.
std::string WithEvaluation(const std::string& line, const EvaluationSums& sums, TaskKind task);

// The models that a line tells of, for the round's evaluation.
std::vector<ModelWithout> ModelsBeside(std::span<const WithoutClient> without,
                                       std::span<const UnlearnedModel> unlearned);

// The lines of a file by round. What follows a line that is damaged is left out.
std::map<Round, std::string> ContributionLines(absl::string_view text);

}  // namespace macaw::server
