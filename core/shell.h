#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace macaw {

// The text as one word of a shell's command line, for commands that messages propose: in single
// quotes unless it has letters, digits and "-_.,:/@%+=" alone.
std::string ForShell(absl::string_view text);

}  // namespace macaw
