#include "server/contributions.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kUnlearnedClients[] = "unlearned_client";

OrderedJson NumberOrNull(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson(nullptr);
}

// nullopt: there are no such sums.
std::optional<double> RatioOf(const std::vector<double>& sums, const training::MetricRatio& ratio) {
  if (sums.size() <= std::max(ratio.numerator, ratio.denominator)) return std::nullopt;
  return sums[ratio.numerator] / sums[ratio.denominator];
}

class SumsByClient {
 public:
  explicit SumsByClient(const std::vector<EvaluationSums::ClientSums>& all) {
    for (const EvaluationSums::ClientSums& one : all) sums_[one.client.value] = &one.sums;
  }
  // nullopt: `client` is none whose model was evaluated.
  std::optional<double> Of(const OrderedJson& client, const training::MetricRatio& ratio) const {
    if (!client.is_number_unsigned()) return std::nullopt;
    const auto found = sums_.find(client.get<uint64_t>());
    return found == sums_.end() ? std::nullopt : RatioOf(*found->second, ratio);
  }

 private:
  std::map<uint64_t, const std::vector<double>*> sums_;
};

}  // namespace

std::string ContributionsOf(Round round, std::span<const WithoutClient> without,
                            std::span<const UnlearnedModel> unlearned) {
  OrderedJson line = {{"round", round.value}};
  for (const char* list : {"client", "weight", "cosine", "model"})
    line[list] = OrderedJson::array();
  for (const WithoutClient& one : without) {
    line["client"].push_back(one.client.value);
    line["weight"].push_back(one.weight);
    line["cosine"].push_back(NumberOrNull(one.cosine));
    line["model"].push_back(one.digest.Hex());
  }
  for (const UnlearnedModel& one : unlearned) {
    line[kUnlearnedClients].push_back(one.client.value);
    line["unlearned_rounds"].push_back(one.rounds);
    line["unlearned_model"].push_back(one.digest.Hex());
  }
  return line.dump();
}

std::string WithEvaluation(const std::string& line, const EvaluationSums& sums, TaskKind task) {
  OrderedJson all = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("client")) return line;
  const SumsByClient of_round(sums.without), of_run(sums.unlearned);
  for (const training::MetricRatio& ratio : training::SchemaFor(task).ratios) {
    const std::optional<double> with_all = RatioOf(sums.central, ratio);
    OrderedJson values = OrderedJson::array(), deltas = OrderedJson::array();
    for (const OrderedJson& client : all["client"]) {
      const std::optional<double> value = of_round.Of(client, ratio);
      values.push_back(NumberOrNull(value));
      deltas.push_back(with_all.has_value() && value.has_value() ? NumberOrNull(*with_all - *value)
                                                                 : OrderedJson(nullptr));
    }
    all[absl::StrCat("test_", ratio.name)] = std::move(values);
    all[absl::StrCat("delta_test_", ratio.name)] = std::move(deltas);
    if (!all.contains(kUnlearnedClients)) continue;
    OrderedJson unlearned = OrderedJson::array();
    for (const OrderedJson& client : all[kUnlearnedClients])
      unlearned.push_back(NumberOrNull(of_run.Of(client, ratio)));
    all[absl::StrCat("unlearned_test_", ratio.name)] = std::move(unlearned);
  }
  return all.dump();
}

std::vector<ModelWithout> ModelsBeside(std::span<const WithoutClient> without,
                                       std::span<const UnlearnedModel> unlearned) {
  std::vector<ModelWithout> models;
  for (const WithoutClient& one : without) models.push_back({one.client, one.model});
  for (const UnlearnedModel& one : unlearned)
    models.push_back({one.client, one.model, ModelWithout::Of::kRun});
  return models;
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
