#pragma once

#include <string>

#include "absl/status/status.h"

namespace macaw::cli {

// Whether a worker of this machine reaches the server, for `macaw doctor --server`: the proxy or
// the name's addresses, the port, and what answers. Prints what it finds on the way to standard
// output. `server`: as a worker dials it. `identity`: a node's folder with its key and
// certificates; empty: a plain connection, with MACAW_TOKEN of the environment. The error says what
// is wrong and what to do. Waits at most five seconds for an answer. One thread.
absl::Status CheckServer(const std::string& server, const std::string& identity);

}  // namespace macaw::cli
