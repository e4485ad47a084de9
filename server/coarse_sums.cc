#include "server/coarse_sums.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace macaw::server {

std::string CoarseSumsText(Round round, const std::vector<std::pair<std::string, double>>& used,
                           const std::vector<std::string>& channels) {
  const auto coarse = std::ranges::find_if(used, [&](const auto& channel) {
    return std::ranges::count(channels, channel.first) > 0 && IsCoarse(channel.second);
  });
  if (coarse == used.end()) return "";
  return absl::StrCat("in round ", round.value, " the largest number of the clients' updates (",
                      coarse->first, ") is ", coarse->second,
                      " of run.contribution_bound, and sums have steps of about 1e-15 of it, so "
                      "most of each update is rounded away: set a smaller run.contribution_bound");
}

}  // namespace macaw::server
