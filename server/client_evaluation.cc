#include "server/client_evaluation.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/strip.h"
#include "server/metrics.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The metrics of the clients that have rows; null: none has.
OrderedJson ListsOf(const std::vector<EvaluationSums::ClientSums>& clients,
                    const training::MetricSchema& schema, bool several_models) {
  OrderedJson lists;
  for (const EvaluationSums::ClientSums& client : clients) {
    if (client.sums.size() < schema.sums.size() || client.sums[0] == 0) continue;
    lists["client"].push_back(client.client.value);
    if (several_models) lists["model"].push_back(client.choice);
    lists["rows"].push_back(static_cast<int64_t>(client.sums[0]));
    for (const training::MetricRatio& ratio : schema.ratios) {
      const double value = client.sums[ratio.numerator] / client.sums[ratio.denominator];
      lists[ratio.name].push_back(std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr));
    }
  }
  return lists;
}

}  // namespace

std::string ClientEvaluationText(const EvaluationSums& sums, TaskKind task, bool several_models) {
  const training::MetricSchema& schema = training::SchemaFor(task);
  OrderedJson text = {{"round", sums.round.value}};
  for (size_t i = 0; i < kEvaluatedRows; ++i) {
    const auto rows = static_cast<EvaluatedRows>(i);
    if (!IsOfClients(rows)) continue;
    OrderedJson lists = ListsOf(sums.Of(rows), schema, several_models);
    if (!lists.is_null())
      text[std::string(absl::StripSuffix(ColumnPrefix(rows), "_"))] = std::move(lists);
  }
  return text.size() == 1 ? "" : text.dump() + "\n";
}

}  // namespace macaw::server
