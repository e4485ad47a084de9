#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace macaw {

// The text as one line that no terminal obeys: "\n" instead of a line break, "\x1b" instead of an
// escape, and so on for all control characters, those of UTF-8 beyond ASCII (U+0080 to U+009F) too.
// All else stays as it is. For texts that come from others.
std::string OneLine(absl::string_view text);

}  // namespace macaw
