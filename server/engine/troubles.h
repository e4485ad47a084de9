#pragma once

#include <map>
#include <optional>
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
  // After each of these another node should train the client, if one asks for it before `until`.
  // RanOut: the client's lease ran out on the node.
  Trouble StateUnreadable(const std::string& node, ClientId client, TimePoint until);
  Trouble LeftOut(const std::string& node, ClientId client, TimePoint until);
  void RanOut(const std::string& node, ClientId client, TimePoint until);
  uint32_t TimesRanOut(ClientId client) const;
  // Until when others should train the client rather than this node; nullopt: it may.
  std::optional<TimePoint> Avoids(const std::string& node, ClientId client) const;
  // The only node that has left these clients out, all of them; empty: there is no such node.
  std::string Alone(const std::vector<fleet::LeftOut>& clients) const;

 private:
  struct Reports {
    uint32_t times = 0;
    std::set<std::string> nodes;
    TimePoint until{};
  };
  static Trouble Note(Trouble::Kind kind, ClientId client, const std::string& node,
                      Reports& reports, TimePoint until = {});

  std::map<Attempt, std::string> lost_leases_;  // with the name of the node that was lost
  std::map<ClientId, Reports> deaths_, unreadable_, left_out_, ran_out_;
};

}  // namespace macaw::server
