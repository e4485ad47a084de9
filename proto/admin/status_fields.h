#pragma once

#include <tuple>
#include <type_traits>

#include "proto/admin/status.h"

// The one list of the values of a status, with their names in JSON and how Prometheus shows them.
// JsonOf (status.cc) and MetricsText (proto/http/metrics.cc) visit it; the table in
// deploy/README.md has the families. A new value is a member in status.h, a line here, and what
// fills it in (server/run_operators.cc, server/engine/description.cc).
namespace macaw::admin {

// A family of Prometheus. A number is a sample, a list gives its length, a state 1 for itself and 0
// for the others. `value`: of the label "state", where several fields are one family. Of a node: a
// sample each, with the label "node".
struct Gauge {
  const char* family = nullptr;  // null: it is not shown
  const char* help = "";
  const char* value = nullptr;
  bool counter = false;
};

template <typename T, typename Member>
struct StatusField {
  const char* name;
  Member T::*member;
  Gauge gauge = {};
  bool is_json = false;  // a text that is itself a JSON object
};
template <typename T, typename Member>
StatusField(const char*, Member T::*) -> StatusField<T, Member>;
template <typename T, typename Member>
StatusField(const char*, Member T::*, Gauge) -> StatusField<T, Member>;
template <typename T, typename Member>
StatusField(const char*, Member T::*, Gauge, bool) -> StatusField<T, Member>;

constexpr auto FieldsOf(std::type_identity<NodeStatus>) {
  using S = NodeStatus;
  return std::tuple(
      StatusField{"name", &S::name}, StatusField{"program", &S::program},
      StatusField{"slots", &S::slots}, StatusField{"clients", &S::clients},
      StatusField{"owner", &S::owner}, StatusField{"waits", &S::waits},
      StatusField{"on_trial", &S::on_trial},
      StatusField{"silent_seconds", &S::silent_seconds,
                  Gauge{"macaw_node_silent_seconds", "Time since the node was heard last"}},
      StatusField{"late", &S::late},
      StatusField{"leased", &S::leased,
                  Gauge{"macaw_node_leased", "Clients that the node has leased"}},
      StatusField{"memory_bytes", &S::memory_bytes,
                  Gauge{"macaw_node_memory_bytes", "The most memory that the node has reported"}},
      StatusField{"sent_bytes", &S::sent_bytes,
                  Gauge{"macaw_node_sent_bytes_total",
                        "Bytes that the node has sent in its session", nullptr, true}},
      StatusField{"received_bytes", &S::received_bytes,
                  Gauge{"macaw_node_received_bytes_total",
                        "Bytes that the node has received in its session", nullptr, true}},
      StatusField{"doing", &S::doing});
}

constexpr auto FieldsOf(std::type_identity<Missing>) {
  return std::tuple(StatusField{"owner", &Missing::owner},
                    StatusField{"clients", &Missing::clients});
}

constexpr auto FieldsOf(std::type_identity<Quarantined>) {
  return std::tuple(StatusField{"node", &Quarantined::node}, StatusField{"by", &Quarantined::by},
                    StatusField{"reason", &Quarantined::reason});
}

constexpr auto FieldsOf(std::type_identity<RunStatus>) {
  using S = RunStatus;
  constexpr const char* kClients = "macaw_clients";
  constexpr const char* kOfPhase = "Clients of the open phase";
  return std::tuple(
      StatusField{"run", &S::run}, StatusField{"epoch", &S::epoch},
      StatusField{"state", &S::state,
                  Gauge{"macaw_run_state", "1 for the state that the run is in, 0 for the others"}},
      StatusField{"step", &S::step},
      StatusField{"round", &S::round, Gauge{"macaw_round", "The open round, or the last one"}},
      StatusField{"phase", &S::phase},
      StatusField{"rounds", &S::rounds, Gauge{"macaw_rounds", "Rounds of the whole run"}},
      StatusField{"completed", &S::completed,
                  Gauge{"macaw_rounds_completed_total", "Rounds that are done", nullptr, true}},
      StatusField{"step_seconds", &S::step_seconds,
                  Gauge{"macaw_step_seconds", "How long the server's present step has lasted"}},
      StatusField{"seconds", &S::seconds,
                  Gauge{"macaw_run_seconds", "Time spent on the run in all sessions"}},
      StatusField{"lease_seconds", &S::lease_seconds},
      StatusField{"heartbeat_seconds", &S::heartbeat_seconds}, StatusField{"ended", &S::ended},
      StatusField{"ending_reason", &S::ending_reason},
      StatusField{"cohort", &S::cohort, Gauge{"macaw_cohort", "Clients of the open phase in all"}},
      StatusField{"waiting", &S::waiting, Gauge{kClients, kOfPhase, "waiting"}},
      StatusField{"leased", &S::leased, Gauge{kClients, kOfPhase, "leased"}},
      StatusField{"counted", &S::counted, Gauge{kClients, kOfPhase, "counted"}},
      StatusField{"given_up", &S::given_up, Gauge{kClients, kOfPhase, "given_up"}},
      StatusField{"requeued", &S::requeued,
                  Gauge{"macaw_requeued", "Leases of the open phase without a result"}},
      StatusField{"missing", &S::missing}, StatusField{"evaluated_round", &S::evaluated_round},
      StatusField{"evaluation_tasks", &S::evaluation_tasks,
                  Gauge{"macaw_evaluation_tasks", "Tasks of the open evaluation"}},
      StatusField{"evaluation_done", &S::evaluation_done,
                  Gauge{"macaw_evaluation_done", "Tasks of the open evaluation that are done"}},
      StatusField{"nodes_wanted", &S::nodes_wanted,
                  Gauge{"macaw_nodes_wanted", "Nodes with which the first round begins"}},
      StatusField{"clients_wanted", &S::clients_wanted},
      StatusField{"clients_known", &S::clients_known},
      StatusField{"nodes", &S::nodes, Gauge{"macaw_nodes", "Registered nodes"}},
      StatusField{"quarantine", &S::quarantine,
                  Gauge{"macaw_quarantined_nodes", "Nodes in quarantine"}},
      StatusField{"nodes_lost", &S::nodes_lost,
                  Gauge{"macaw_nodes_lost_total", "Nodes that the server has lost", nullptr, true}},
      StatusField{"parts_turned_down", &S::parts_turned_down,
                  Gauge{"macaw_parts_turned_down_total", "Parts of nodes that do not count",
                        nullptr, true}},
      StatusField{"latest_row", &S::latest_row, Gauge{}, /*is_json=*/true},
      StatusField{"memory_bytes", &S::memory_bytes,
                  Gauge{"macaw_server_memory_bytes", "Peak memory of the server"}},
      StatusField{"disk_free", &S::disk_free,
                  Gauge{"macaw_disk_free_bytes", "Free space where the run's folder is"}},
      StatusField{"program", &S::program}, StatusField{"waits_for", &S::waits_for});
}

template <typename T>
concept HasStatusFields = requires {
  FieldsOf(std::type_identity<T>());
};

// visit(field, value) for each value.
template <HasStatusFields T, typename Visitor>
void ForEachField(const T& status, const Visitor& visit) {
  std::apply([&](const auto&... field) { (visit(field, status.*field.member), ...); },
             FieldsOf(std::type_identity<T>()));
}

}  // namespace macaw::admin
