#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "testing/program.h"

namespace macaw::testing_support {

// The Python interpreter: MACAW_PYTHON, or the one that `./dev test` makes, with NumPy, PyTorch and
// safetensors.
inline std::string Python() {
  const char* named = ::getenv("MACAW_PYTHON");
  if (named != nullptr) return named;
  const std::string made = MACAW_SOURCE_DIR "/.deps/python/bin/python";
  return ::access(made.c_str(), X_OK) == 0 ? made : "python3";
}

// "" if Python can import these modules ("torch, numpy"); else why the test must be skipped.
inline std::string WhyNoPython(const std::string& modules) {
  const Printed probe = RunShell(absl::StrCat(Python(), " -c 'import ", modules, "'"));
  if (probe.exit == 0) return "";
  return absl::StrCat(
      Python(), " cannot import ", modules,
      "; ./dev test makes one that can, MACAW_PYTHON names another. It said: ", probe.text);
}

}  // namespace macaw::testing_support
