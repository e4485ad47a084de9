#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw {

// The groups of evaluation.groups: entries "NAME=PATTERN", where the pattern is of clients' names
// as in cohort.eligible. A client is in the group of the first entry that it matches. Immutable,
// thread-safe.
class NamedGroups {
 public:
  NamedGroups() = default;  // no groups
  // An error says which entry is wrong.
  static absl::StatusOr<NamedGroups> Parse(const std::vector<std::string>& entries);

  // In the order of their first entries.
  const std::vector<std::string>& names() const { return names_; }
  // The group of a client's name: an index into names(). Nothing: no entry matches.
  std::optional<uint32_t> Of(absl::string_view client) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, uint32_t>> patterns_;  // each with its group
};

}  // namespace macaw
