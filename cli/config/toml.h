#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/config/value.h"

namespace macaw::cli {

// Parses a whole document into a Table; every value has its place ("NAME:LINE"). Syntax errors and
// repeated keys name the line.
absl::StatusOr<Value> ParseToml(absl::string_view text, const std::string& name);

// Parses the value in `--set key=value`: any TOML value; a bare word is a string.
absl::StatusOr<Value> ParseTomlValue(absl::string_view text, const Place& place);

}  // namespace macaw::cli
