#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::cli {

// The clients that a command gives to a node: those of --clients, which commas part, and those of
// --client, each by its whole name. Refuses names with which no node could ever join, blanks around
// a name of --clients, a name that is there twice, "*" (every client) beside others, and clients of
// an operator. One empty text is no client.
absl::StatusOr<std::vector<std::string>> ClientsNamed(absl::string_view role,
                                                      std::vector<std::string> listed,
                                                      const std::vector<std::string>& whole);

}  // namespace macaw::cli
