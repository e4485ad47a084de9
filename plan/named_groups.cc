#include "plan/named_groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/cohort.h"

namespace macaw {

absl::StatusOr<NamedGroups> NamedGroups::Parse(const std::vector<std::string>& entries) {
  NamedGroups groups;
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

std::optional<uint32_t> NamedGroups::Of(absl::string_view client) const {
  const auto whole = whole_names_.find(client);
  for (const auto& [pattern, entry] : patterns_) {
    if (whole != whole_names_.end() && whole->second.place < entry.place) break;
    if (NameMatches(client, pattern)) return entry.group;
  }
  if (whole == whole_names_.end()) return std::nullopt;
  return whole->second.group;
}

}  // namespace macaw
