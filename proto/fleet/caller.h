#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace macaw::fleet {

enum class Role : uint8_t {
  kStranger,  // has not said who it is, or not in a way that is known here
  kNode,      // trains clients
};

// Who makes a call, as the transport has found out (on a private socket by the token that a
// supervisor gave its child). What a caller says of itself in a message is never believed.
struct Caller {
  Role role = Role::kNode;
  // The node that it speaks for. Empty: whichever it says (a server that keeps no list of its
  // callers, on loopback or a private socket).
  std::string node;
  // The names of the clients that it may register as their owner; empty: any.
  std::vector<std::string> owns;
};

// Shared by the calls of one caller: an owner may have a million names.
using CallerPtr = std::shared_ptr<const Caller>;

}  // namespace macaw::fleet
