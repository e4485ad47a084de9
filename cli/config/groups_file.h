#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/settings/value.h"

namespace macaw::cli {

// The value of evaluation.groups with the rows of FILE in the place of each entry "@FILE": a table
// as CSV (commas, semicolons or tabs) whose columns `client` and `group` become GROUP=CLIENT; other
// columns are ignored, and so are rows with an empty group. A relative path starts at `folder`. So
// the effective configuration has the groups themselves, and no later reader needs the file. Errors
// name the entry's place, the file and its line.
absl::StatusOr<settings::Value> WithGroupsOfFiles(const settings::Value& groups,
                                                  const std::string& folder);

}  // namespace macaw::cli
