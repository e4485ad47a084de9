#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "plan/run_plan.h"

namespace macaw::cli {

// What the clients that can be drawn have, of all clients of a data set: those with training rows
// that cohort.eligible and cohort.min_rows do not leave out, and enough of them for a step
// (plan/local_steps.h).
struct Drawable {
  uint64_t clients = 0;
  // Training rows, and tokens in them, of each client as many as count (cohort.max_weight).
  uint64_t examples = 0, tokens = 0;
};

// What cohort.eligible and evaluation.groups match: the names of the data, or, where owners hold
// the clients of a simulation, their numbers.
enum class MatchedBy { kName, kNumber };

// The training rows of each client, 0 for those that cannot be drawn.
std::vector<uint32_t> DrawableRows(const RunPlan& run, const data::Dataset& dataset,
                                   MatchedBy matched = MatchedBy::kName);

// Looks at every client. Reads rows only to count tokens, where a key leaves clients out.
absl::StatusOr<Drawable> DrawableOf(const RunPlan& run, const data::Dataset& dataset,
                                    MatchedBy matched = MatchedBy::kName);

// Whether a round can ask as many clients as it has to. The error names the keys.
absl::Status CheckDrawable(const RunPlan& run, const Drawable& drawable, uint64_t clients);

// Whether each group of evaluation.groups has a client, where groups are evaluated. The error names
// one that has none.
absl::Status CheckGroups(const RunPlan& run, const data::Dataset& dataset, MatchedBy matched);
// Says which patterns of evaluation.groups put no client into their groups, where groups are
// evaluated. Empty: none is such.
std::string NoteOnGroups(const RunPlan& run, const data::Dataset& dataset, MatchedBy matched);

}  // namespace macaw::cli
