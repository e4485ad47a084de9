#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace macaw {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
size_t EditDistance(absl::string_view a, absl::string_view b);

// Whether somebody who wrote `word` may have meant a word at this distance.
bool IsNear(size_t distance, absl::string_view word);

// The nearest spelling among `words`, for error messages; "" when none is near. Letters' case and
// '-' for '_' do not count.
std::string NearestWord(absl::string_view word, const std::vector<std::string>& words);

// "1 slot", "12 slots".
std::string Counted(uint64_t number, absl::string_view what);

// Lower case, '-' as '_'.
std::string NormalSpelling(absl::string_view word);

}  // namespace macaw
