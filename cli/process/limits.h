#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace macaw::cli {

// Raises this process's limit on open files (sockets and pipes count) as far as allowed, if the
// limit is low. Children inherit it. Returns an error if even that is too little for a run whose
// server has so many connections: the server would hang up on the last ones for ever, and the
// libraries would crash at the limit one by one.
absl::Status EnsureOpenFiles(uint64_t connections = 0);

}  // namespace macaw::cli
