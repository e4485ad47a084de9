#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/settings/value.h"

namespace macaw::cli {

using settings::Array;
using settings::Place;
using settings::Table;
using settings::TomlKey;
using settings::Value;

// Parses a whole document into a Table; every value has its place ("NAME:LINE"). Syntax errors and
// repeated keys name the line.
absl::StatusOr<Value> ParseToml(absl::string_view text, const std::string& name);

// Parses the value in `--set key=value`: any TOML value; a bare word is a string.
absl::StatusOr<Value> ParseTomlValue(absl::string_view text, const Place& place);

}  // namespace macaw::cli
