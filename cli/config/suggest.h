#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/spelling.h"

namespace macaw::cli {

// The key of `known` that somebody who wrote `key` ("local.learning_rate", "comm_round") probably
// meant; "" if none is similar. Tries, in this order: a slip in its name or in its table, other
// systems' names, the same name in another table, the most similar spelling.
std::string NearestKey(absl::string_view key, const std::vector<std::string>& known);

}  // namespace macaw::cli
