#include "cli/diff/words.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw::cli {
namespace {

std::vector<uint64_t> OnlyIn(const std::set<uint64_t>& a, const std::set<uint64_t>& b) {
  std::vector<uint64_t> only;
  std::ranges::set_difference(a, b, std::back_inserter(only));
  return only;
}

// "clients 3, 17 and 4 more"
std::string ClientsText(const std::vector<uint64_t>& clients) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(clients.size(), kMost);
  std::string text = absl::StrCat(clients.size() == 1 ? "client " : "clients ",
                                  absl::StrJoin(clients.begin(), clients.begin() + shown, ", "));
  if (clients.size() > shown) absl::StrAppend(&text, " and ", clients.size() - shown, " more");
  return text;
}

}  // namespace

std::string SetsText(const std::set<uint64_t>& a, const std::set<uint64_t>& b) {
  std::vector<std::string> sides;
  if (const auto only = OnlyIn(a, b); !only.empty())
    sides.push_back(absl::StrCat("only the first has ", ClientsText(only)));
  if (const auto only = OnlyIn(b, a); !only.empty())
    sides.push_back(absl::StrCat("only the second has ", ClientsText(only)));
  return absl::StrJoin(sides, ", ");
}

std::string CohortText(const std::vector<server::log::Member>& a,
                       const std::vector<server::log::Member>& b) {
  std::set<uint64_t> first, second;
  for (const server::log::Member& member : a) first.insert(member.client.value);
  for (const server::log::Member& member : b) second.insert(member.client.value);
  const std::string text = SetsText(first, second);
  return text.empty() ? "the cohort has other multiplicities or another order"
                      : absl::StrCat("other clients are drawn: ", text);
}

std::string RoundsText(const std::vector<RoundSpan>& ranges) {
  constexpr size_t kMost = 4;
  std::vector<std::string> shown;
  uint64_t all = 0, more = 0;
  for (const RoundSpan& range : ranges) {
    const uint64_t count = uint64_t{range.last} - range.first + 1;
    all += count;
    if (shown.size() == kMost) {
      more += count;
    } else {
      shown.push_back(count == 1 ? absl::StrCat(range.first)
                                 : absl::StrCat(range.first, " to ", range.last));
    }
  }
  std::string text = absl::StrCat(all == 1 ? "round " : "rounds ", absl::StrJoin(shown, ", "));
  if (more > 0) absl::StrAppend(&text, " and ", more, " more");
  return text;
}

}  // namespace macaw::cli
