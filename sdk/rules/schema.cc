#include "sdk/rules/schema.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "training/api/local_json.h"
#include "training/api/metrics.h"

namespace macaw::sdk::rules {
namespace {

using aggregation::Reduction;

absl::StatusOr<Reduction> ReductionOf(const Json& word) {
  constexpr std::pair<const char*, Reduction> kWords[] = {
      {"weighted_mean", Reduction::kWeightedMean},
      {"mean", Reduction::kMean},
      {"sum", Reduction::kFixedSum},
      {"max", Reduction::kMax},
      {"collect", Reduction::kCollect}};
  for (const auto& [name, reduction] : kWords) {
    if (word == name) return reduction;
  }
  return absl::InternalError(
      absl::StrCat("schema: reduce is ", word.dump(),
                   " instead of \"weighted_mean\", \"mean\", \"sum\", \"max\" or \"collect\""));
}

std::vector<Phase> PhasesOf(const Json& numbers) {
  std::vector<Phase> phases;
  for (const Json& number : numbers) phases.emplace_back(number.get<uint32_t>());
  return phases;
}

// The model's, or so many numbers in double precision.
LayoutPtr LayoutOf(const Json& item, const LayoutPtr& model) {
  const Json& size = item.at("size");
  return size.is_null() ? model
                        : ParameterLayout::Scalars("value", size.get<int64_t>(), DType::kF64);
}

std::vector<algorithms::NamedLayout> LayoutsOf(const Json& items, const LayoutPtr& model) {
  std::vector<algorithms::NamedLayout> layouts;
  for (const Json& item : items) {
    layouts.push_back({.name = item.at("name").get<std::string>(),
                       .layout = LayoutOf(item, model),
                       .summed = item.at("summed").get<bool>()});
  }
  return layouts;
}

absl::StatusOr<RuleSchema> SchemaIn(const Json& said, const algorithms::Setup& setup) {
  RuleSchema schema{.model = setup.layout};
  for (const Json& item : said.at("down")) {
    schema.travels.down.push_back({item.at("name").get<std::string>(), LayoutOf(item, setup.layout),
                                   PhasesOf(item.at("phases"))});
  }
  for (const Json& item : said.at("up")) {
    aggregation::ChannelSpec channel;
    channel.name = item.at("name").get<std::string>();
    channel.layout = LayoutOf(item, setup.layout);
    MACAW_ASSIGN_OR_RETURN(channel.reduction, ReductionOf(item.at("reduce")));
    const Json& bound = item.at("bound");
    channel.bound = bound.is_null() ? setup.contribution_bound : bound.get<double>();
    channel.divisor = item.at("divisor").get<double>();
    if (!(channel.divisor > 0)) {
      return absl::InternalError(absl::StrCat("schema: the divisor of '", channel.name, "' is ",
                                              channel.divisor, " instead of a number > 0"));
    }
    channel.phases = PhasesOf(item.at("phases"));
    schema.travels.up.push_back(std::move(channel));
  }
  schema.travels.state = LayoutsOf(said.at("state"), setup.layout);
  for (const Json& item : said.at("metrics")) {
    algorithms::MetricSpec metric;
    metric.name = item.at("name").get<std::string>();
    if (!item.at("reduce").is_null()) {
      MACAW_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(item.at("reduce")));
      metric.reduction = reduction;
    }
    metric.bound = item.at("bound").get<double>();
    metric.phases = PhasesOf(item.at("phases"));
    schema.travels.metrics.push_back(std::move(metric));
  }
  schema.server = LayoutsOf(said.at("server"), setup.layout);
  for (const algorithms::NamedLayout& item : schema.server)
    schema.travels.saved.push_back(item.layout);
  schema.numbers = said.at("numbers").get<std::map<std::string, double>>();
  return schema;
}

Json OfParameter(const ParameterValue& value) {
  return std::visit([](const auto& data) { return Json(data); }, value);
}

Json OfLayout(const ParameterLayout& layout) {
  Json entries = Json::array();
  for (const LayoutEntry& entry : layout.entries()) {
    entries.push_back({{"name", entry.name},
                       {"shape", entry.shape},
                       {"offset", entry.offset},
                       {"size", entry.size},
                       {"buffer", entry.group == Group::kBuffer}});
  }
  return {{"dtype", std::string(Name(layout.dtype()))},
          {"size", layout.size()},
          {"parameters", layout.parameter_size()},
          {"entries", std::move(entries)}};
}

Json OpeningOf(const Rule& rule, const algorithms::Setup& setup) {
  static const settings::Section<CohortConfig> cohort = CohortSection();
  Json parameters = Json::object();
  for (const auto& [name, value] : setup.config.parameters) parameters[name] = OfParameter(value);
  return {{"do", "open"},
          {"rule", rule.name},
          {"parameters", std::move(parameters)},
          {"sums", training::SchemaFor(setup.task).sums},  // names of an outcome's
          {"setup",
           {{"layout", OfLayout(*setup.layout)},
            {"local", training::ToJson(setup.local)},
            {"cohort", peer::ToJson(cohort, setup.cohort, nullptr)},
            {"clients", setup.clients},
            {"total_weight", setup.total_weight},
            {"contribution_bound", setup.contribution_bound},
            {"seed", setup.seed},
            {"with_replacement", setup.with_replacement()}}}};
}

}  // namespace

absl::StatusOr<Opened> Open(const Rule& rule, const algorithms::Setup& setup) {
  Opened opened;
  opened.crew = std::make_unique<Crew>(rule.interpreter, OpeningOf(rule, setup), rule.seconds);
  MACAW_ASSIGN_OR_RETURN(const Json answer, opened.crew->Open());
  MACAW_ASSIGN_OR_RETURN(opened.schema, SchemaIn(answer.at("schema"), setup));
  if (const Json& passes = answer.at("passes"); !passes.is_null())
    opened.passes = algorithms::Passes(passes[0].get<double>(), passes[1].get<double>());
  if (!answer.at("refused").is_null())
    opened.refused = absl::InvalidArgumentError(answer.at("refused").get<std::string>());
  return opened;
}

absl::StatusOr<algorithms::ParameterSpec> ParameterOf(const Json& described) {
  algorithms::ParameterSpec spec;
  spec.name = described.at("name").get<std::string>();
  const std::string type = described.at("type").get<std::string>();
  const Json& standard = described.at("default");
  if (type == "boolean") spec.default_value = standard.get<bool>();
  if (type == "integer") spec.default_value = standard.get<int64_t>();
  if (type == "number") spec.default_value = standard.get<double>();
  if (type == "string") spec.default_value = standard.get<std::string>();
  spec.help = described.value("help", std::string());
  const auto number = [&](const char* key) -> std::optional<double> {
    const auto found = described.find(key);
    if (found == described.end() || found->is_null()) return std::nullopt;
    return found->get<double>();
  };
  spec.minimum = number("minimum");
  spec.maximum = number("maximum");
  spec.choices = described.value("choices", std::vector<std::string>());
  return spec;
}

}  // namespace macaw::sdk::rules
