#include <iostream>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "algorithms/api/registry.h"
#include "cli/commands/commands.h"
#include "cli/config/describe.h"
#include "cli/config/reader.h"
#include "cli/config/writer.h"
#include "cli/process/exit.h"
#include "core/status.h"
#include "data/partition.h"
#include "models/named.h"
#include "models/parse.h"
#include "models/spec.h"
#include "sdk/loader.h"
#include "training/backends.h"

namespace macaw::cli {
namespace {

// The built-ins and the command's plug-ins.
absl::StatusOr<sdk::Catalogue> CatalogueOf(const ListCommand& command) {
  if (command.config.empty()) return sdk::LoadAll(command.plugins);
  if (command.plugins.empty()) {
    MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(command.config));
    return LoadCatalogue(document, {});
  }
  return absl::InvalidArgumentError("--plugin and --config: give one of them");
}

// The schema of an example run: the defaults, on a network with a layer for every rule.
absl::StatusOr<algorithms::Schema> ExampleSchema(const algorithms::Registry& registry,
                                                 const algorithms::Description& algorithm) {
  algorithms::Setup setup;
  MACAW_ASSIGN_OR_RETURN(setup.config, registry.Complete({algorithm.name, {}}));
  MACAW_ASSIGN_OR_RETURN(
      setup.layout,
      ParameterLayout::Make({{.name = "bn.weight", .shape = {1}},
                             {.name = "fc.weight", .shape = {1}},
                             {.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer}},
                            DType::kF32));
  setup.cohort.size = 10;
  setup.clients = 100;
  setup.total_weight = 1000;
  return algorithms::SchemaOf(algorithm, setup);
}

const char* ReductionName(aggregation::Reduction reduction) {
  constexpr const char* kNames[] = {"mean weighted by cohort.weight", "plain mean",
                                    "sum over a fixed divisor", "largest", "each client's own"};
  return kNames[static_cast<size_t>(reduction)];
}

// ", in phase 0 and 1"; nothing if that is in all.
std::string InPhases(const std::vector<Phase>& phases) {
  if (phases.empty()) return "";
  const auto append = [](std::string* out, Phase phase) { absl::StrAppend(out, phase.value); };
  return absl::StrCat(", in phase ", absl::StrJoin(phases, " and ", append));
}

void PrintSchema(const algorithms::Schema& schema) {
  std::cout << "\nto the clients\n";
  for (const algorithms::DownChannel& channel : schema.down)
    std::cout << "  " << channel.name << InPhases(channel.phases) << "\n";
  std::cout << "to the server\n";
  for (const aggregation::ChannelSpec& channel : schema.up) {
    std::cout << absl::StrFormat("  %-26s %s%s\n", channel.name, ReductionName(channel.reduction),
                                 InPhases(channel.phases));
  }
  if (!schema.metrics.empty()) std::cout << "metrics of its own (rule_… in metrics.jsonl)\n";
  for (const algorithms::MetricSpec& metric : schema.metrics) {
    const bool server = !metric.reduction.has_value();
    std::cout << absl::StrFormat("  %-26s %s%s\n", metric.name,
                                 server ? "the server's" : ReductionName(*metric.reduction),
                                 InPhases(metric.phases));
  }
  std::cout << "kept by each client\n";
  for (const algorithms::NamedLayout& item : schema.state) std::cout << "  " << item.name << "\n";
  if (schema.state.empty()) std::cout << "  nothing\n";
}

// Wraps a text into lines of at most 100 bytes.
std::string Wrapped(absl::string_view text) {
  std::string lines;
  size_t used = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const bool fits = used == 0 || used + 1 + word.size() <= 100;
    absl::StrAppend(&lines, used == 0 ? "" : fits ? " " : "\n", word);
    used = fits && used > 0 ? used + 1 + word.size() : word.size();
  }
  return lines;
}

void PrintDescription(const algorithms::Registry& registry,
                      const algorithms::Description& algorithm) {
  std::cout << algorithm.name << ": " << algorithm.summary << "\n" << algorithm.paper << "\n";
  if (!algorithm.parameters.empty()) std::cout << "\n[algorithm." << algorithm.name << "]\n";
  for (const algorithms::ParameterSpec& spec : algorithm.parameters) {
    std::cout << absl::StrFormat(
        "%-34s # %s%s\n", absl::StrCat(spec.name, " = ", ToToml(spec.default_value)), spec.help,
        spec.choices.empty() ? "" : absl::StrCat(" (", absl::StrJoin(spec.choices, " | "), ")"));
  }
  const absl::StatusOr<algorithms::Schema> schema = ExampleSchema(registry, algorithm);
  if (schema.ok()) PrintSchema(*schema);
  if (!algorithm.remarks.empty()) std::cout << "\n" << Wrapped(algorithm.remarks) << "\n";
}

// The built-in models that `workers.backend = "auto"` gives to LibTorch.
std::set<std::string> ForLibTorch() {
  std::set<std::string> names;
  RunPlan run;
  run.task = TaskKind::kClassification;  // a run knows its task when it chooses
  for (const ModelConfig& config : models::ExampleConfigs()) {
    const absl::StatusOr<models::ModelSpec> spec = models::BuildSpec(config, DType::kF32);
    if (!spec.ok()) continue;
    const auto features = spec->takes_tokens() ? data::FeatureType::kI32 : data::FeatureType::kF32;
    const auto backends = training::BackendsFor(training::TrainerSetup::Of(run, *spec, features));
    if (backends.ok() && backends->front() == training::kTorchBackend) names.insert(config.name);
  }
  return names;
}

}  // namespace

int ListModels(const ListCommand& command) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  const std::set<std::string> for_libtorch = ForLibTorch();
  std::cout << "model.name\n";
  for (const models::NamedModel& model : models::NamedModels()) {
    std::cout << absl::StrFormat("  %-12s %s%s\n  %-12s %s\n", model.name, model.summary,
                                 for_libtorch.contains(model.name) ? " (needs LibTorch)" : "", "",
                                 absl::StrJoin(model.layers, " · "));
  }
  for (const auto& [name, model] : catalogue->models())
    std::cout << absl::StrFormat("  %-12s %s\n", name, model.summary);
  std::cout << "\nmodel.layers, a list of\n";
  for (const models::LayerWords& words : models::AllLayerWords())
    std::cout << "  "
              << absl::StripTrailingAsciiWhitespace(
                     absl::StrFormat("%-45s %s", words.text, words.help))
              << "\n";
  return kExitOk;
}

int ListAlgorithms(const ListCommand& command, const std::string& name) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  const algorithms::Registry& registry = catalogue->algorithms();
  if (name.empty()) {
    for (const algorithms::Description* algorithm : registry.All()) {
      std::cout << absl::StrFormat("%-12s %s (%s)\n", algorithm->name, algorithm->summary,
                                   algorithm->paper);
    }
    return kExitOk;
  }
  const auto found = registry.Find(name);
  if (!found.ok()) {
    const bool looked = !command.config.empty() || !command.plugins.empty();
    return Report(absl::Status(
        found.status().code(),
        absl::StrCat(found.status().message(),
                     looked ? "" : "; a plug-in's is found with --plugin FILE or --config FILE")));
  }
  PrintDescription(registry, **found);
  return kExitOk;
}

int ListPartitions() {
  for (const data::Choice& scheme : data::PartitionSchemes()) {
    std::cout << absl::StrFormat("%-18s %s\n", scheme.name, scheme.description);
  }
  return kExitOk;
}

int PrintConfigHelp(const ListCommand& command) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  std::cout << "# Every key of a configuration: default, meaning, what is allowed. A \"…\" has no "
               "fixed default.\n\n"
            << ConfigHelp(catalogue->algorithms());
  return kExitOk;
}

int DescribeAll(const ListCommand& command, const std::string& version) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  std::cout << DescribeJson(*catalogue, version);
  return kExitOk;
}

}  // namespace macaw::cli
