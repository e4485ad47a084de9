#pragma once

#include <cstdint>

namespace macaw::server {

// Names a call that is waiting for its answer.
using Ticket = uint64_t;

}  // namespace macaw::server
