#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::cli {

// The names of a run's clients, by their numbers in the run: those of the data that the run's
// configuration names, which is opened for it, or of a fleet's run those that its owners brought.
// Empty: the clients have numbers alone.
absl::StatusOr<std::vector<std::string>> ClientNamesOf(const std::string& run);

// How many clients the run has, as its configuration says, or of a fleet's run what its owners
// brought; 0: neither says so.
absl::StatusOr<uint64_t> ClientCountOf(const std::string& run);

// The number of the client that the text means: one of `names`, its number, or its number with a
// "#" before it, which no name hides. A number that is also another client's name is refused with
// both. An error has a similar name.
absl::StatusOr<uint64_t> ClientNumber(absl::string_view client,
                                      const std::vector<std::string>& names);

// Whether the text is a number, with a "#" before it or not.
bool IsClientNumber(absl::string_view client);

}  // namespace macaw::cli
