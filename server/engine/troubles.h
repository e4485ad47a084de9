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

// The troubles of the open round: which node reported which trouble with which client. A death
// counts once, and only if the node held a lease of the client when it was lost. Pure; one thread.
class Troubles {
 public:
  void Clear() { *this = {}; }

  // Notes that the node was lost with these leases.
  void LostWith(const std::string& node, std::span<const Attempt> leases);
  // `running`: the attempts that the node's former process was training when it died, as the new
  // process reports them. Returns the troubles that count, without `candidates` and `owned`.
  std::vector<Trouble> Died(const std::string& node, std::span<const Attempt> running);
  Trouble StateUnreadable(const std::string& node, ClientId client);
  // Whether the node has reported that it cannot read the client's state.
  bool CannotRead(const std::string& node, ClientId client) const;
  // Whether a node with this holding has not reported that it cannot read the client's state.
  bool SomebodyElse(const Nodes& nodes, HoldingId holding, ClientId client) const;

 private:
  struct Reports {
    uint32_t times = 0;
    std::set<std::string> nodes;
  };
  static Trouble Note(Trouble::Kind kind, ClientId client, const std::string& node,
                      Reports& reports);

  std::map<Attempt, std::string> lost_leases_;  // with the name of the node that was lost
  std::map<ClientId, Reports> deaths_, unreadable_;
};

}  // namespace macaw::server
