#pragma once

#include <string>

#include "proto/admin/status.h"

namespace macaw::server {

// Sets `late` of the nodes that have been silent for three heartbeats: killed, hung or cut off. In
// a large fleet, whose heartbeats are rare, of those that have been silent for most of a lease.
void MarkLateNodes(admin::RunStatus& status);

// One sentence that says what the run waits for at this moment, such as "8 of 10 clients: phone-7
// silent for 41 s, lab-3 has 2 leases". Reads the other fields of the status only. Pure.
std::string WaitsFor(const admin::RunStatus& status);

// "3 s", "2 min", "1 h 5 min"
std::string DurationText(double seconds);

}  // namespace macaw::server
