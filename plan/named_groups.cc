#include "plan/named_groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/spelling.h"
#include "plan/cohort.h"

namespace macaw {
namespace {

constexpr size_t kShown = 3;  // patterns, and names of clients, in a sentence

std::string Quoted(const std::vector<std::string>& words) {
  return absl::StrCat("\"", absl::StrJoin(words, "\", \""), "\"");
}

}  // namespace

absl::StatusOr<NamedGroups> NamedGroups::Parse(const std::vector<std::string>& entries) {
  NamedGroups groups;
  groups.entries_ = entries;
  absl::flat_hash_map<std::string, uint32_t> numbers;
  for (size_t place = 0; place < entries.size(); ++place) {
    const std::string& entry = entries[place];
    const size_t sign = entry.find('=');
    const std::string name = entry.substr(0, sign);
    const auto fits = [](char c) {
      return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
    };
    if (sign == std::string::npos || name.empty() || !std::ranges::all_of(name, fits) ||
        sign + 1 == entry.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "evaluation.groups: \"", entry,
          "\" is no NAME=PATTERN, with a name of small letters, digits and _ and a pattern of "
          "clients' names, such as \"phones=phone-*\""));
    }
    // The column clients_test_group_gap_accuracy is of all groups.
    if (name == "gap" || absl::StartsWith(name, "gap_")) {
      return absl::InvalidArgumentError(
          absl::StrCat("evaluation.groups: \"", entry,
                       "\": group_gap_* are the columns of the distance between the best and the "
                       "worst group; give the group another name than gap or gap_…"));
    }
    const auto [number, added] = numbers.emplace(name, groups.names_.size());
    if (added) groups.names_.push_back(name);
    std::string pattern = entry.substr(sign + 1);
    const Entry found{.place = place, .group = number->second};
    if (pattern.find_first_of("*?") == std::string::npos) {
      groups.whole_names_.emplace(std::move(pattern), found);
    } else {
      groups.patterns_.emplace_back(std::move(pattern), found);
    }
  }
  return groups;
}

std::optional<NamedGroups::Entry> NamedGroups::EntryOf(absl::string_view client) const {
  const auto whole = whole_names_.find(client);
  for (const auto& [pattern, entry] : patterns_) {
    if (whole != whole_names_.end() && whole->second.place < entry.place) break;
    if (NameMatches(client, pattern)) return entry;
  }
  if (whole == whole_names_.end()) return std::nullopt;
  return whole->second;
}

std::optional<uint32_t> NamedGroups::Of(absl::string_view client) const {
  const std::optional<Entry> entry = EntryOf(client);
  return entry.has_value() ? std::optional(entry->group) : std::nullopt;
}

std::optional<uint32_t> GroupMatches::Add(const std::string& client) {
  if (clients_.size() < kShown) clients_.push_back(client);
  const std::optional<NamedGroups::Entry> entry = groups_.EntryOf(client);
  if (!entry.has_value()) return std::nullopt;
  matched_[entry->place] = true;
  return entry->group;
}

std::string GroupMatches::Unmatched() const {
  std::vector<std::string> idle;
  for (size_t i = 0; i < matched_.size(); ++i)
    if (!matched_[i]) idle.push_back(groups_.entries()[i]);
  if (idle.empty()) return "";
  const size_t count = idle.size();
  idle.resize(std::min(count, kShown));
  return absl::StrCat("evaluation.groups: no client is in a group by ", count, " of ",
                      Counted(matched_.size(), "pattern"), " (", Quoted(idle),
                      count > kShown ? ", …" : "", "); clients are named ", Quoted(clients_),
                      clients_.size() == kShown ? ", …" : "",
                      ", and one is in the group of the first pattern that matches");
}

}  // namespace macaw
