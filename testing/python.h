#pragma once

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace macaw::testing_support {

struct Finished {
  int exit = -1;
  std::string output;  // both streams
};

inline Finished RunShell(const std::string& command) {
  Finished result;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char piece[4096];
  while (std::fgets(piece, sizeof(piece), pipe) != nullptr) result.output += piece;
  const int status = ::pclose(pipe);
  result.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

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
  const Finished probe = RunShell(absl::StrCat(Python(), " -c 'import ", modules, "'"));
  if (probe.exit == 0) return "";
  return absl::StrCat(
      Python(), " cannot import ", modules,
      "; ./dev test makes one that can, MACAW_PYTHON names another. It said: ", probe.output);
}

}  // namespace macaw::testing_support
