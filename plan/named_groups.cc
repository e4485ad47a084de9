#include "plan/named_groups.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/cohort.h"

namespace macaw {

absl::StatusOr<NamedGroups> NamedGroups::Parse(const std::vector<std::string>& entries) {
  NamedGroups groups;
  for (const std::string& entry : entries) {
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
    const auto known = std::ranges::find(groups.names_, name);
    const auto group = static_cast<uint32_t>(known - groups.names_.begin());
    if (known == groups.names_.end()) groups.names_.push_back(name);
    groups.patterns_.emplace_back(entry.substr(sign + 1), group);
  }
  return groups;
}

std::optional<uint32_t> NamedGroups::Of(absl::string_view client) const {
  for (const auto& [pattern, group] : patterns_) {
    if (NameMatches(client, pattern)) return group;
  }
  return std::nullopt;
}

}  // namespace macaw
