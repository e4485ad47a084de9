#pragma once

#include <memory>

#include "proto/fleet/caller.h"
#include "proto/fleet/link.h"

namespace macaw::fleet {

// A link to a handler in the same process, which must outlive it: tests, and nothing is copied.
std::unique_ptr<FleetLink> MakeLocalLink(FleetHandler& handler, Caller caller = {});

}  // namespace macaw::fleet
