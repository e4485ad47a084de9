#pragma once

#include <cstdint>
#include <vector>

#include "proto/fleet/messages.h"

namespace macaw::server {

// Adds the model of this age to those of a lease, unless it is the newest or there already. What
// would make the lease's message too large is named only, and the worker fetches it.
void AddOlder(const std::vector<fleet::OlderModel>& models, uint32_t staleness,
              std::vector<fleet::OlderModel>& lease);

}  // namespace macaw::server
