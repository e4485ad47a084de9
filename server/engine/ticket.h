#pragma once

#include <cstdint>

namespace macaw::server {

// Identifies a call that waits for its answer.
using Ticket = uint64_t;

}  // namespace macaw::server
