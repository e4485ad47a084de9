#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/clock.h"
#include "proto/fleet/messages.h"

namespace macaw::worker {

// The pace that a server asks a node for, within what a node does: a server that errs, or lies,
// neither keeps a node busy with calls nor lets it sleep for months. A real server stays inside:
// it asks for a heartbeat three times in server.lease_timeout, and for pauses of 10 ms a node.
constexpr Duration kShortestPulse = std::chrono::milliseconds(5);
constexpr Duration kLongestPulse = std::chrono::hours(1);
constexpr Duration kShortestReconnect = std::chrono::milliseconds(1);
constexpr Duration kLongestReconnect = std::chrono::hours(3);

// Brings the two pauses of the answer into their ranges. Returns a line for the log; empty: they
// were inside. A pause of 0 before a lost server is looked for is the node's choice, and stays.
inline std::string BoundPace(fleet::RegisterReply& registration) {
  std::string note;
  const auto bound = [&note](Duration& pause, Duration least, Duration most, const char* what) {
    const Duration asked = pause;
    pause = std::clamp(pause, least, most);
    if (pause != asked) {
      absl::StrAppend(&note, note.empty() ? "pace_bounded" : ";", " the server asks for ", what,
                      " of ", ToSeconds(asked), " s, and the node takes ", ToSeconds(pause), " s");
    }
  };
  bound(registration.heartbeat_every, kShortestPulse, kLongestPulse, "a time between heartbeats");
  if (registration.reconnect_every != Duration{}) {
    bound(registration.reconnect_every, kShortestReconnect, kLongestReconnect,
          "a pause before it is looked for again");
  }
  return note;
}

}  // namespace macaw::worker
