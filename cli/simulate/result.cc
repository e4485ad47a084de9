#include "cli/simulate/result.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::json;

template <typename T>
T ValueOr(const Json& object, const char* key, T fallback) {
  const auto found = object.find(key);
  if constexpr (std::is_same_v<T, std::string>) {
    return found != object.end() && found->is_string() ? found->template get<T>() : fallback;
  } else {
    return found != object.end() && found->is_number() ? found->template get<T>() : fallback;
  }
}

}  // namespace

absl::StatusOr<RunResult> ReadResult(const std::string& folder) {
  const std::string path = folder + "/summary.json";
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return absl::DataLossError(absl::StrCat(path, " is not a JSON object"));
  RunResult result;
  result.folder = folder;
  result.rounds = ValueOr<uint32_t>(summary, "rounds", 0);
  result.seconds = ValueOr<double>(summary, "seconds", 0);
  result.rounds_per_second = ValueOr<double>(summary, "rounds_per_second", 0);
  result.model_digest = ValueOr<std::string>(summary, "model_digest", "");
  const auto final = summary.find("final");
  if (final != summary.end() && final->is_object()) {
    for (const auto& [metric, value] : final->items()) {
      if (value.is_number()) result.final[metric] = value.get<double>();
    }
  }
  return result;
}

std::string ResultText(const RunResult& result) {
  std::string text =
      absl::StrFormat("done       %d rounds in %.1f s (%.3g rounds/s after the start)\n",
                      result.rounds, result.seconds, result.rounds_per_second);
  std::string metrics;
  for (const char* metric : {"train_loss", "test_loss", "test_accuracy"}) {
    const auto found = result.final.find(metric);
    if (found != result.final.end())
      absl::StrAppendFormat(&metrics, "  %s %.4f", metric, found->second);
  }
  if (!metrics.empty()) absl::StrAppend(&text, "final    ", metrics, "\n");
  absl::StrAppend(
      &text, "results    ", result.folder, "/: summary.json, metrics.jsonl, model.safetensors\n",
      "in Python  pandas.read_json(\"", result.folder, "/metrics.jsonl\", lines=True)\n",
      "           safetensors.torch.load_file(\"", result.folder, "/model.safetensors\")\n");
  return text;
}

std::vector<Spread> SpreadOf(const std::vector<RunResult>& runs) {
  std::vector<Spread> spreads;
  if (runs.empty()) return spreads;
  for (const auto& [metric, ignored] : runs[0].final) {
    Spread spread{.metric = metric};
    for (const RunResult& run : runs) {
      const auto found = run.final.find(metric);
      if (found != run.final.end()) spread.values.push_back(found->second);
    }
    if (spread.values.size() != runs.size()) continue;  // a metric that not every run has
    const auto n = static_cast<double>(spread.values.size());
    for (const double value : spread.values) spread.mean += value / n;
    double squares = 0;
    for (const double value : spread.values)
      squares += (value - spread.mean) * (value - spread.mean);
    spread.std = n > 1 ? std::sqrt(squares / (n - 1)) : 0;
    spreads.push_back(std::move(spread));
  }
  return spreads;
}

std::string SpreadText(const std::vector<Spread>& spreads) {
  std::string text;
  for (const Spread& spread : spreads) {
    absl::StrAppendFormat(&text, "%-24s %.4f ± %.4f\n", spread.metric, spread.mean, spread.std);
  }
  return text;
}

std::string SpreadJson(const std::vector<RunResult>& runs, const std::vector<Spread>& spreads) {
  Json json = {{"runs", Json::array()}, {"metrics", Json::object()}};
  for (const RunResult& run : runs) {
    json["runs"].push_back({{"folder", run.folder},
                            {"seed", run.seed},
                            {"rounds", run.rounds},
                            {"seconds", run.seconds},
                            {"model_digest", run.model_digest},
                            {"final", run.final}});
  }
  for (const Spread& spread : spreads) {
    json["metrics"][spread.metric] = {
        {"mean", spread.mean}, {"std", spread.std}, {"values", spread.values}};
  }
  return json.dump(2) + "\n";
}

}  // namespace macaw::cli
