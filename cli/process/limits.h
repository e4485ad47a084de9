#pragma once

#include "absl/status/status.h"

namespace macaw::cli {

// Raises this process's limit on open files (sockets and pipes count) as far as it may, when it is
// low; its children inherit that. An error when even that is too little for a run: the libraries
// underneath would crash on it one by one.
absl::Status EnsureOpenFiles();

}  // namespace macaw::cli
