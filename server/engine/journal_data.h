#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "core/ids.h"
#include "proto/fleet/messages.h"

// The data about which the engine makes its decisions. The log of rounds has the decisions only. A
// server with durable commits keeps both, so that the next server can go on (server/journal/).
namespace macaw::server {

// Of a log::NodeJoined: the registration, with everything that the engine takes from it.
struct JournalNode {
  WorkerId node;
  SessionId session;
  fleet::RegisterRequest request;  // with the bytes of its table
};

// Of a log::Accepted: the part, with the clients that the decision settles.
struct JournalPart {
  WorkerId node;
  std::string node_name;
  uint64_t commit = 0;
  fleet::Part part;
};

using JournalData = std::variant<std::monostate, JournalNode, JournalPart>;

}  // namespace macaw::server
