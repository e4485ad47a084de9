#include "proto/http/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace macaw::http {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// The text's families, each a name with one or several values.
class Families {
 public:
  // A family of one value.
  void One(std::string name, std::string help, double value, MetricType type = MetricType::Gauge) {
    Begin(std::move(name), std::move(help), type);
    families_.back().metric.push_back(ValueOf(value));
  }
  // Begin: a family whose values are told apart by a label. Add: one of them.
  void Begin(std::string name, std::string help, MetricType type = MetricType::Gauge) {
    families_.push_back({std::move(name), std::move(help), type, {}});
  }
  void Add(const std::string& label, const std::string& text, double value) {
    families_.back().metric.push_back(ValueOf(value));
    families_.back().metric.back().label.push_back({label, text});
  }
  const std::vector<MetricFamily>& list() const { return families_; }

 private:
  ClientMetric ValueOf(double value) const {
    ClientMetric metric;
    metric.gauge.value = metric.counter.value = value;  // the family's type chooses
    return metric;
  }
  std::vector<MetricFamily> families_;
};

double Number(uint64_t value) { return static_cast<double>(value); }

void AddRun(const admin::RunStatus& s, Families& to) {
  to.Begin("macaw_run_state", "1 for the state that the run is in");
  for (const auto one :
       {admin::RunState::kWaiting, admin::RunState::kRunning, admin::RunState::kPausing,
        admin::RunState::kPaused, admin::RunState::kDraining, admin::RunState::kEnding,
        admin::RunState::kEnded}) {
    to.Add("state", admin::NameOf(one), one == s.state ? 1 : 0);
  }
  to.One("macaw_run_seconds", "Time spent on the run in all sessions", s.seconds);
  to.One("macaw_step_seconds", "How long the server's present step has lasted", s.step_seconds);
  to.One("macaw_round", "The open round, or the last one", s.round);
  to.One("macaw_rounds", "Rounds of the whole run", s.rounds);
  to.One("macaw_rounds_completed_total", "Rounds that are done", s.completed, MetricType::Counter);
  to.One("macaw_server_memory_bytes", "Peak memory of the server", Number(s.memory_bytes));
}

void AddPhase(const admin::RunStatus& s, Families& to) {
  to.Begin("macaw_clients", "Clients of the open phase");
  to.Add("state", "waiting", Number(s.waiting));
  to.Add("state", "leased", Number(s.leased));
  to.Add("state", "counted", Number(s.counted));
  to.Add("state", "given_up", Number(s.given_up));
  to.One("macaw_cohort", "Clients of the open phase in all", Number(s.cohort));
  to.One("macaw_requeued", "Leases of the open phase without a result", Number(s.requeued));
  to.One("macaw_evaluation_tasks", "Tasks of the open evaluation", Number(s.evaluation_tasks));
  to.One("macaw_evaluation_done", "Tasks of it that are done", Number(s.evaluation_done));
}

void AddNodes(const admin::RunStatus& s, Families& to) {
  to.One("macaw_nodes", "Registered nodes", Number(s.nodes.size()));
  to.One("macaw_nodes_wanted", "Nodes with which the first round begins", s.nodes_wanted);
  to.One("macaw_nodes_late", "Nodes of which several heartbeats have not come",
         static_cast<double>(std::ranges::count_if(s.nodes, &admin::NodeStatus::late)));
  to.One("macaw_quarantined_nodes", "Nodes in quarantine", Number(s.quarantine.size()));
  to.Begin("macaw_node_leased", "Clients that the node has leased");
  for (const auto& node : s.nodes) to.Add("node", node.name, Number(node.leased));
  to.Begin("macaw_node_silent_seconds", "Time since the node was heard last");
  for (const auto& node : s.nodes) to.Add("node", node.name, node.silent_seconds);
  to.Begin("macaw_node_memory_bytes", "The most memory that the node has reported");
  for (const auto& node : s.nodes) to.Add("node", node.name, Number(node.memory_bytes));
}

void AddRow(const admin::RunStatus& s, Families& to) {
  to.Begin("macaw_metric", "Columns of the newest row of metrics.jsonl");
  const auto json = nlohmann::json::parse(s.latest_row, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) to.Add("name", name, value.get<double>());
  }
}

}  // namespace

std::string MetricsText(const admin::RunStatus& status) {
  Families families;
  AddRun(status, families);
  AddPhase(status, families);
  AddNodes(status, families);
  AddRow(status, families);
  return prometheus::TextSerializer().Serialize(families.list());
}

}  // namespace macaw::http
