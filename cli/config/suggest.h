#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace macaw::cli {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
size_t EditDistance(absl::string_view a, absl::string_view b);

// The key that somebody who wrote `key` ("local.learning_rate", "comm_round") probably meant, one
// of `known`; "" when nothing is near. Tries, in this order: what other systems call it, the same
// name in another table, the nearest spelling.
std::string NearestKey(absl::string_view key, const std::vector<std::string>& known);

// The nearest spelling among `words` or "".
std::string NearestWord(absl::string_view word, const std::vector<std::string>& words);

}  // namespace macaw::cli
