#pragma once

#include <cstddef>
#include <string>

namespace macaw::bench {

// What connections cost that are there and do nothing but send heartbeats: memory of the server,
// times of heartbeats, and a storm of all coming back at once and paced over so many seconds.
// `plain`: over a Unix socket without TLS. Prints a line for each.
void MeasureIdle(size_t devices, double pacing, bool plain);

// What the server's process does: it writes its address to the descriptor and serves until it is
// killed. No run is behind it, so what is measured is the transport. `authority`: "" for none.
[[noreturn]] void ServeNothing(const std::string& authority, const std::string& listen, int ready);

}  // namespace macaw::bench
