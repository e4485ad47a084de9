#include "core/spelling.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace macaw {

// A word that begins with the one that was given is meant before any other: "test_acc" is
// "test_accuracy" and not "test_auc". Shorter beginnings say too little.
constexpr size_t kShortest = 4;

std::string NormalSpelling(absl::string_view word) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(word), {{"-", "_"}});
}

bool IsNear(size_t distance, absl::string_view word) {
  return distance <= std::max<size_t>(1, word.size() / 3);
}

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string Counted(uint64_t number, absl::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

std::string NearestWord(absl::string_view word, const std::vector<std::string>& words) {
  const std::string wanted = NormalSpelling(word);
  const std::string* best = nullptr;
  std::pair<bool, size_t> best_rank;
  for (const std::string& candidate : words) {
    const std::string spelled = NormalSpelling(candidate);
    const size_t distance = EditDistance(wanted, spelled);
    const bool begins = wanted.size() >= kShortest && spelled.starts_with(wanted);
    if (!begins && !IsNear(distance, wanted)) continue;
    const std::pair rank(!begins, distance);
    if (best == nullptr || rank < best_rank) {
      best = &candidate;
      best_rank = rank;
    }
  }
  return best == nullptr ? "" : *best;
}

}  // namespace macaw
