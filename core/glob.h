#pragma once

#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace macaw {

// Whether `name` matches a glob: * stands for any characters, ? for one.
bool MatchesGlob(absl::string_view glob, absl::string_view name);
// Whether it is among the names that the globs choose. They are read in order: each adds the names
// that it matches; "!GLOB" takes out those that GLOB matches.
bool MatchesAny(std::span<const std::string> globs, absl::string_view name);

}  // namespace macaw
