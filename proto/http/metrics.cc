#include "proto/http/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/admin/status_fields.h"

namespace macaw::http {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// The text's families, each a name with one or several values, in the order of their first value.
class Families {
 public:
  void Begin(const admin::Gauge& gauge) {
    if (!families_.empty() && families_.back().name == gauge.family) return;
    families_.push_back(
        {gauge.family, gauge.help, gauge.counter ? MetricType::Counter : MetricType::Gauge, {}});
  }
  // A value of the family that was begun; `label` tells it from others, if it is not null.
  void Add(double value, const char* label = nullptr, const std::string& text = "") {
    ClientMetric metric;
    metric.gauge.value = metric.counter.value = value;  // the family's type chooses
    if (label != nullptr) metric.label.push_back({label, text});
    families_.back().metric.push_back(std::move(metric));
  }
  const std::vector<MetricFamily>& list() const { return families_; }

 private:
  std::vector<MetricFamily> families_;
};

template <typename T>
void AddValues(const admin::Gauge& gauge, const T& value, Families& to) {
  if constexpr (std::is_arithmetic_v<T>) {
    to.Add(static_cast<double>(value), gauge.value == nullptr ? nullptr : "state",
           gauge.value == nullptr ? "" : gauge.value);
  } else if constexpr (std::is_same_v<T, admin::RunState>) {
    constexpr auto kLast = static_cast<uint8_t>(admin::RunState::kEnded);
    for (uint8_t one = 1; one <= kLast; ++one) {
      const auto state = static_cast<admin::RunState>(one);
      to.Add(state == value ? 1 : 0, "state", admin::NameOf(state));
    }
  } else if constexpr (requires { value.size(); }) {
    to.Add(static_cast<double>(value.size()));
  }
}

void AddNodes(const std::vector<admin::NodeStatus>& nodes, Families& to) {
  to.Begin({"macaw_nodes_late", "Nodes of which three heartbeats have not come"});
  to.Add(static_cast<double>(std::ranges::count_if(nodes, &admin::NodeStatus::late)));
  admin::ForEachField(admin::NodeStatus(), [&](const auto& field, const auto&) {
    if (field.gauge.family == nullptr) return;
    to.Begin(field.gauge);
    for (const admin::NodeStatus& node : nodes) {
      const auto& value = node.*field.member;
      if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>)
        to.Add(static_cast<double>(value), "node", node.name);
    }
  });
}

void AddBuild(const std::string& program, Families& to) {
  to.Begin({"macaw_build_info", "1, with the server's version"});
  to.Add(1, "version", program.substr(program.find(' ') + 1));
}

void AddRow(const std::string& row, Families& to) {
  to.Begin({"macaw_metric", "Columns of the newest row of metrics.jsonl"});
  const auto json = nlohmann::json::parse(row, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number()) to.Add(value.get<double>(), "name", name);
  }
}

}  // namespace

std::string MetricsText(const admin::RunStatus& status) {
  Families families;
  admin::ForEachField(status, [&](const auto& field, const auto& value) {
    if (field.gauge.family == nullptr) return;
    families.Begin(field.gauge);
    AddValues(field.gauge, value, families);
  });
  AddBuild(status.program, families);
  AddNodes(status.nodes, families);
  AddRow(status.latest_row, families);
  return prometheus::TextSerializer().Serialize(families.list());
}

}  // namespace macaw::http
