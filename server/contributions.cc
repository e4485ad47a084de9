#include "server/contributions.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson NumberOrNull(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson(nullptr);
}

// nullopt: there are no such sums.
std::optional<double> RatioOf(const std::vector<double>& sums, const training::MetricRatio& ratio) {
  if (sums.size() <= std::max(ratio.numerator, ratio.denominator)) return std::nullopt;
  return sums[ratio.numerator] / sums[ratio.denominator];
}

}  // namespace

std::string ContributionsOf(Round round, std::span<const WithoutClient> without) {
  OrderedJson line = {{"round", round.value}};
  for (const char* list : {"client", "weight", "cosine", "model"})
    line[list] = OrderedJson::array();
  for (const WithoutClient& one : without) {
    line["client"].push_back(one.client.value);
    line["weight"].push_back(one.weight);
    line["cosine"].push_back(NumberOrNull(one.cosine));
    line["model"].push_back(one.digest.Hex());
  }
  return line.dump();
}

std::string WithEvaluation(const std::string& line, const EvaluationSums& sums, TaskKind task) {
  OrderedJson all = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("client")) return line;
  std::map<uint64_t, const std::vector<double>*> of_client;
  for (const EvaluationSums::ClientSums& one : sums.without)
    of_client[one.client.value] = &one.sums;
  for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios) {
    const std::optional<double> with_all = RatioOf(sums.central, ratio);
    OrderedJson values = OrderedJson::array(), deltas = OrderedJson::array();
    for (const OrderedJson& client : all["client"]) {
      const auto found =
          client.is_number_unsigned() ? of_client.find(client.get<uint64_t>()) : of_client.end();
      std::optional<double> value;
      if (found != of_client.end()) value = RatioOf(*found->second, ratio);
      values.push_back(NumberOrNull(value));
      deltas.push_back(with_all.has_value() && value.has_value() ? NumberOrNull(*with_all - *value)
                                                                 : OrderedJson(nullptr));
    }
    all[absl::StrCat("test_", ratio.name)] = std::move(values);
    all[absl::StrCat("delta_test_", ratio.name)] = std::move(deltas);
  }
  return all.dump();
}

std::map<Round, std::string> ContributionLines(absl::string_view text) {
  std::map<Round, std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const OrderedJson parsed = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || !parsed.contains("round") || !parsed["round"].is_number_unsigned())
      break;
    lines[Round(parsed["round"].get<uint32_t>())] = std::string(line);
  }
  return lines;
}

}  // namespace macaw::server
