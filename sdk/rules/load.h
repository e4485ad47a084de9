#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/around/registry.h"

namespace macaw::sdk::rules {

// Whether a plug-in is a file of rules in Python, by its name.
bool IsPython(absl::string_view path);

// The rules of a file in Python, whose bytes are `text`. Their halves and the interpreter live in
// processes beside this one (interpreter.h); call it on the main thread. Errors say what is missing
// (Python, NumPy), or what the file raised, and where.
absl::StatusOr<std::vector<algorithms::Description>> Load(const std::string& path,
                                                          absl::string_view text);

}  // namespace macaw::sdk::rules
