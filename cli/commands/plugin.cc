#include <iostream>

#include "absl/status/statusor.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "sdk/catalogue.h"
#include "sdk/loader.h"

namespace macaw::cli {
namespace {

// Loads a plug-in as a run would, and lists what it adds.
int PluginCheck(const std::string& path) {
  const sdk::Catalogue before = sdk::Catalogue::Builtins();
  const absl::StatusOr<sdk::Catalogue> after = sdk::LoadAll({path});
  if (!after.ok()) return Report(after.status());
  std::cout << "plug-in    " << after->plugins()[0] << "\n";
  for (const algorithms::Description* algorithm : after->algorithms().All()) {
    if (before.algorithms().Find(algorithm->name).ok()) continue;
    std::cout << "algorithm  " << algorithm->name << ": " << algorithm->summary << "\n";
  }
  for (const auto& [name, model] : after->models()) {
    std::cout << "model      " << name << ": " << model.summary << "\n";
  }
  for (const auto& [name, source] : after->data_sources()) {
    std::cout << "data       " << name << ": " << source.summary << "\n";
  }
  return kExitOk;
}

}  // namespace

void AddPlugin(CLI::App& app, std::function<int()>& run) {
  CLI::App* plugin = app.add_subcommand("plugin", "Look at a plug-in (macaw new --cpp writes one)");
  plugin->require_subcommand(1);
  auto path = std::make_shared<std::string>();
  CLI::App* check = plugin->add_subcommand("check", "Load a plug-in and list what it adds");
  check->add_option("FILE", *path, "The shared library")->required();
  check->final_callback([=, &run] { run = [path] { return PluginCheck(*path); }; });
}

}  // namespace macaw::cli
