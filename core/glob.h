#pragma once

#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace macaw {

// Whether `name` matches a glob: * stands for any characters, ? for one.
bool MatchesGlob(absl::string_view glob, absl::string_view name);
// Whether it matches one of them.
bool MatchesAny(std::span<const std::string> globs, absl::string_view name);

}  // namespace macaw
