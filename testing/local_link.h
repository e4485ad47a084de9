#pragma once

#include <memory>

#include "proto/fleet/caller.h"
#include "proto/fleet/link.h"

namespace macaw::fleet {

// A link, for tests, to a handler in the same process. It copies nothing. The handler must outlive
// it.
std::unique_ptr<FleetLink> MakeLocalLink(FleetHandler& handler, Caller caller = {});

}  // namespace macaw::fleet
