#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/fd.h"

namespace macaw {

// The path of the Python interpreter: MACAW_PYTHON, or else python3 of the PATH. An error says
// which of them cannot be run ("python3 is not on the PATH").
absl::StatusOr<std::string> FindPython();

// A memory file with this text, for a child that inherits the descriptor. It closes on exec.
absl::StatusOr<Fd> MemoryFile(absl::string_view text);

// A module of Python whose text is in the program (macaw_modules_header of cmake/MacawText.cmake).
struct PythonModule {
  const char* name;
  const char* text;
};

}  // namespace macaw
