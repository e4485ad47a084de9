#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "server/engine/nodes.h"
#include "server/engine/round_policy.h"

namespace macaw::server {

// The troubles of the open round: who said what about which client. A death counts once, and only
// if it is of a lease that this node had when it was lost. Pure; one thread.
class Troubles {
 public:
  void Clear() { *this = {}; }

  // These leases ended with their node.
  void LostWith(const std::string& node, std::span<const Attempt> leases);
  // What the node's new process says its former one was training when it died. The troubles are
  // filled in but for `candidates` and `owned`.
  std::vector<Trouble> Died(const std::string& node, std::span<const Attempt> running);
  Trouble StateUnreadable(const std::string& node, ClientId client);
  // Whether the node has said that it cannot read the client's state.
  bool CannotRead(const std::string& node, ClientId client) const;
  // Whether one of those with the holding has not said so.
  bool SomebodyElse(const Nodes& nodes, HoldingId holding, ClientId client) const;

 private:
  struct Reports {
    uint32_t times = 0;
    std::set<std::string> nodes;
  };
  static Trouble Note(Trouble::Kind kind, ClientId client, const std::string& node,
                      Reports& reports);

  std::map<Attempt, std::string> lost_leases_;  // and by which node
  std::map<ClientId, Reports> deaths_, unreadable_;
};

}  // namespace macaw::server
