#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace macaw {

// The number of insertions, deletions, replacements and swaps of neighbours that turn one word into
// the other.
size_t EditDistance(absl::string_view a, absl::string_view b);

// Whether `word` may be a misspelling of a word at this distance.
bool IsNear(size_t distance, absl::string_view word);

// The most similar word of `words`, for error messages; "" when none is similar. Ignores case, and
// treats '-' as '_'.
std::string NearestWord(absl::string_view word, const std::vector<std::string>& words);

// A number with its noun: "1 slot", "12 slots".
std::string Counted(uint64_t number, absl::string_view what);

// The word in lower case, with '-' replaced by '_'.
std::string NormalSpelling(absl::string_view word);

}  // namespace macaw
