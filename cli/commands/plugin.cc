#include "cli/commands/plugin.h"

#include <iostream>

#include "absl/status/statusor.h"
#include "cli/process/exit.h"
#include "sdk/catalogue.h"
#include "sdk/loader.h"

namespace macaw::cli {

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

}  // namespace macaw::cli
