#include "proto/admin/status.h"

#include <nlohmann/json.hpp>

namespace macaw::admin {

using Json = nlohmann::ordered_json;

const char* NameOf(RunState state) {
  static constexpr const char* kNames[] = {"?",      "waiting",  "running", "pausing",
                                           "paused", "draining", "ending",  "ended"};
  const auto index = static_cast<size_t>(state);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

const char* NameOf(Step step) {
  static constexpr const char* kNames[] = {"?",        "gathering",  "preparing", "training",
                                           "applying", "evaluating", "idle",      "awaiting"};
  const auto index = static_cast<size_t>(step);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

std::string JsonOf(const RunStatus& status) {
  Json nodes = Json::array();
  for (const NodeStatus& node : status.nodes) {
    nodes.push_back({{"name", node.name},
                     {"slots", node.slots},
                     {"clients", node.clients},
                     {"owner", node.owner},
                     {"waits", node.waits},
                     {"on_trial", node.on_trial},
                     {"silent_seconds", node.silent_seconds},
                     {"late", node.late},
                     {"leased", node.leased},
                     {"memory_bytes", node.memory_bytes},
                     {"doing", node.doing}});
  }
  Json missing = Json::array(), quarantine = Json::array();
  for (const Missing& one : status.missing)
    missing.push_back({{"owner", one.owner}, {"clients", one.clients}});
  for (const Quarantined& one : status.quarantine)
    quarantine.push_back({{"node", one.node}, {"by", one.by}, {"reason", one.reason}});
  const Json row = Json::parse(status.latest_row, nullptr, /*allow_exceptions=*/false);
  const Json json = {{"run", status.run},
                     {"epoch", status.epoch},
                     {"state", NameOf(status.state)},
                     {"step", NameOf(status.step)},
                     {"round", status.round},
                     {"phase", status.phase},
                     {"rounds", status.rounds},
                     {"completed", status.completed},
                     {"step_seconds", status.step_seconds},
                     {"seconds", status.seconds},
                     {"lease_seconds", status.lease_seconds},
                     {"heartbeat_seconds", status.heartbeat_seconds},
                     {"ended", status.ended},
                     {"ending_reason", status.ending_reason},
                     {"cohort", status.cohort},
                     {"waiting", status.waiting},
                     {"leased", status.leased},
                     {"counted", status.counted},
                     {"given_up", status.given_up},
                     {"requeued", status.requeued},
                     {"missing", missing},
                     {"evaluated_round", status.evaluated_round},
                     {"evaluation_tasks", status.evaluation_tasks},
                     {"evaluation_done", status.evaluation_done},
                     {"nodes_wanted", status.nodes_wanted},
                     {"clients_wanted", status.clients_wanted},
                     {"clients_known", status.clients_known},
                     {"nodes", nodes},
                     {"quarantine", quarantine},
                     {"latest_row", row.is_discarded() ? Json() : row},
                     {"memory_bytes", status.memory_bytes},
                     {"waits_for", status.waits_for}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace macaw::admin
