#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw {

// The groups of evaluation.groups: entries "NAME=PATTERN", where the pattern is of clients' names
// as in cohort.eligible. A client is in the group of the first entry that it matches. Entries of
// whole names are found by hash, so a list of all clients is as fast as a few patterns. Immutable,
// thread-safe.
class NamedGroups {
 public:
  NamedGroups() = default;  // no groups
  // An error says which entry is wrong.
  static absl::StatusOr<NamedGroups> Parse(const std::vector<std::string>& entries);

  // In the order of their first entries.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& entries() const { return entries_; }
  struct Entry {
    size_t place = 0;  // among the entries
    uint32_t group = 0;
  };
  // The first entry that matches a client's name. Nothing: none does.
  std::optional<Entry> EntryOf(absl::string_view client) const;
  // The group of a client's name: an index into names(). Nothing: no entry matches.
  std::optional<uint32_t> Of(absl::string_view client) const;

 private:
  std::vector<std::string> names_, entries_;
  absl::flat_hash_map<std::string, Entry> whole_names_;  // the first entry of each
  std::vector<std::pair<std::string, Entry>> patterns_;  // the others, by place
};

// Puts clients into their groups, and notes which entries put any there. One thread.
class GroupMatches {
 public:
  // `groups` must outlive it.
  explicit GroupMatches(const NamedGroups& groups)
      : groups_(groups), matched_(groups.entries().size()) {}

  // The group of a further client.
  std::optional<uint32_t> Add(const std::string& client);
  // Says which entries are the first match of no client so far, and how clients are named. Empty:
  // each entry is that of a client.
  std::string Unmatched() const;

 private:
  const NamedGroups& groups_;
  std::vector<bool> matched_;         // by entry
  std::vector<std::string> clients_;  // the first ones
};

}  // namespace macaw
