#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace macaw::fleet {

enum class Role : uint8_t {
  kStranger,  // brought no token and no certificate, or one that the server does not believe
  kNode,      // trains clients: its own, and those whose rows many nodes have
  kDevice,    // trains its own clients alone
  kOperator,  // trains nothing; changes runs and nodes
};

// Who makes a call. The transport finds this out, by a certificate or, on a private socket, by the
// token that the supervisor gave to its child. What a caller writes about itself in a message is
// never trusted.
struct Caller {
  Role role = Role::kNode;
  // The node that the caller speaks for. Empty: any node that it names (a server on loopback or a
  // private socket that keeps no list of its callers).
  std::string node;
  // The clients that the caller may register as their owner: of any name, or of these.
  bool owns_any = true;
  std::vector<std::string> owns;
};

// Shared by the calls of one caller: an owner may have a million names.
using CallerPtr = std::shared_ptr<const Caller>;

}  // namespace macaw::fleet
