#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "algorithms/around/registry.h"
#include "cli/commands/commands.h"
#include "cli/config/describe.h"
#include "cli/config/reader.h"
#include "cli/config/rule_page.h"
#include "cli/config/writer.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/status.h"
#include "data/partition.h"
#include "models/named.h"
#include "models/parse.h"
#include "models/spec.h"
#include "sdk/loader.h"
#include "training/backends.h"

namespace macaw::cli {
namespace {

// What to list besides the built-ins: plug-ins, and a configuration that names plug-ins.
struct ListCommand {
  std::vector<std::string> plugins;
  std::string config;
};

// The built-ins and the command's plug-ins.
absl::StatusOr<sdk::Catalogue> CatalogueOf(const ListCommand& command) {
  if (command.config.empty()) return sdk::LoadAll(command.plugins);
  if (command.plugins.empty()) {
    MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(command.config));
    return LoadCatalogue(document, {});
  }
  return absl::InvalidArgumentError("--plugin and --config: give one of them");
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

int ListModels(const ListCommand& command) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  const std::set<std::string> for_libtorch = ForLibTorch();
  std::cout << "model.name\n";
  for (const models::NamedModel& model : models::NamedModels()) {
    std::cout << absl::StrFormat("  %-16s %s%s\n  %-16s %s\n", model.name, model.summary,
                                 for_libtorch.contains(model.name) ? " (needs LibTorch)" : "", "",
                                 absl::StrJoin(model.layers, " · "));
  }
  for (const auto& [name, model] : catalogue->models())
    std::cout << absl::StrFormat("  %-16s %s\n", name, model.summary);
  std::cout << "\nmodel.layers, a list of\n";
  for (const models::LayerWords& words : models::AllLayerWords())
    std::cout << "  "
              << absl::StripTrailingAsciiWhitespace(
                     absl::StrFormat("%-47s %s", words.text, words.help))
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
  std::cout << RuleText(registry, **found);
  return kExitOk;
}

// Writes a page of Markdown for each algorithm into `folder`, which is made if need be.
int WriteRulePages(const ListCommand& command, const std::string& folder) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Report(absl::InvalidArgumentError(
        absl::StrCat("--pages ", folder, ": cannot make the folder: ", error.message())));
  }
  const std::map<std::string, std::string> pages = RulePages(catalogue->algorithms());
  for (const auto& [name, page] : pages) {
    if (absl::Status status = AtomicWriteFile(absl::StrCat(folder, "/", name), page); !status.ok())
      return Report(status);
  }
  std::cout << pages.size() << " pages in " << folder << "\n";
  return kExitOk;
}

int ListPartitions() {
  for (const data::Choice& scheme : data::PartitionSchemes()) {
    std::cout << absl::StrFormat("%-18s %s\n", scheme.name, scheme.description);
  }
  return kExitOk;
}

int PrintHelp(const ListCommand& command) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  std::cout << "# Every key of a configuration: default, meaning, what is allowed. A \"…\" has no "
               "fixed default.\n\n"
            << ConfigHelp(catalogue->algorithms());
  return kExitOk;
}

// Prints all that a configuration can say, as JSON (cli/config/describe.h).
int DescribeAll(const ListCommand& command) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(command);
  if (!catalogue.ok()) return Report(catalogue.status());
  std::cout << DescribeJson(*catalogue, MACAW_VERSION);
  return kExitOk;
}

}  // namespace

int PrintConfigHelp() { return PrintHelp({}); }

void AddLists(CLI::App& app, std::function<int()>& run) {
  auto where = std::make_shared<ListCommand>();
  const auto looks_beside = [where](CLI::App* command) {
    command->add_option("--plugin", where->plugins, "Also what this shared library adds")
        ->type_name("FILE")
        ->allow_extra_args(false);
    command->add_option("--config", where->config, "Also the plug-ins of this configuration");
  };
  CLI::App* models = app.add_subcommand("models", "List the models by name, and the layers");
  looks_beside(models);
  models->final_callback([where, &run] { run = [where] { return ListModels(*where); }; });
  app.add_subcommand("partitions", "List the ways to divide data")->final_callback([&run] {
    run = ListPartitions;
  });
  CLI::App* keys = app.add_subcommand("keys", "List every key of a configuration");
  looks_beside(keys);
  auto json = std::make_shared<bool>(false);
  keys->add_flag("--json", *json,
                 "Also algorithms, partitions, models and layers, as one JSON object");
  keys->final_callback(
      [=, &run] { run = [=] { return *json ? DescribeAll(*where) : PrintHelp(*where); }; });
  CLI::App* algorithms =
      app.add_subcommand("algorithms", "List the algorithms, or what one computes and takes");
  auto name = std::make_shared<std::string>(), pages = std::make_shared<std::string>();
  CLI::Option* one =
      algorithms->add_option("NAME", *name, "Show this one's formula, parameters and channels");
  algorithms->add_option("--pages", *pages, "Write a page for each into this folder, as Markdown")
      ->excludes(one);
  looks_beside(algorithms);
  algorithms->final_callback([=, &run] {
    run = [=] {
      return pages->empty() ? ListAlgorithms(*where, *name) : WriteRulePages(*where, *pages);
    };
  });
}

}  // namespace macaw::cli
