#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/spelling.h"

namespace macaw::cli {

// The key that somebody who wrote `key` ("local.learning_rate", "comm_round") probably meant, one
// of `known`; "" when nothing is near. Tries, in this order: what other systems call it, the same
// name in another table, the nearest spelling.
std::string NearestKey(absl::string_view key, const std::vector<std::string>& known);

}  // namespace macaw::cli
