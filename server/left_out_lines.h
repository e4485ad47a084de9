#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/token_bucket.h"
#include "proto/fleet/messages.h"
#include "server/engine/nodes.h"
#include "server/engine/roster.h"
#include "server/log/record.h"

namespace macaw::server {

// What the server's log says of the clients that one node leaves out, as the node's heartbeats tell
// it. A node may name any clients, as often as it likes: only those that it has are written, a few
// for each heartbeat and so many in a time. (rounds.log has what counts, from the commits.) One
// thread.
class LeftOutLines {
 public:
  std::vector<std::string> Of(const std::vector<fleet::LeftOut>& left_out, const Node& node,
                              const Roster& roster, TimePoint now) {
    constexpr size_t kMost = 4;  // for each heartbeat
    std::vector<std::string> lines;
    for (const fleet::LeftOut& left : left_out) {
      if (lines.size() == kMost) break;
      const ClientId client = left.attempt.client;
      const bool has = roster.begun() && client.value < roster.clients() &&
                       roster.HoldingOf(client) == node.holding;
      // `states_lost` says that its owner goes on without its state.
      const bool goes_on =
          left.reason == fleet::LeftOutReason::kState && !roster.owner_of(node.holding).empty();
      if (!has || goes_on || !bucket_.Take(kAllowance, now)) continue;
      lines.push_back(absl::StrCat("client_left_out client=", client.value, " worker=", node.name,
                                   " reason=", log::NameOf(left.reason), " why=\"",
                                   absl::StrReplaceAll(left.message, {{"\n", " "}}), "\""));
    }
    return lines;
  }

 private:
  static constexpr Allowance kAllowance = {.every = std::chrono::seconds(1), .burst = 100};
  TokenBucket bucket_;
};

}  // namespace macaw::server
