#include <iostream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "algorithms/api/registry.h"
#include "cli/commands/commands.h"
#include "cli/config/writer.h"
#include "cli/process/supervisor.h"
#include "data/partition.h"
#include "models/spec.h"

namespace macaw::cli {
namespace {

algorithms::Registry Builtins() {
  algorithms::Registry registry;
  algorithms::RegisterBuiltinAlgorithms(registry);
  return registry;
}

void PrintDescription(const algorithms::Description& algorithm) {
  std::cout << algorithm.name << ": " << algorithm.summary << "\n" << algorithm.paper << "\n";
  if (!algorithm.parameters.empty()) std::cout << "\n[algorithm." << algorithm.name << "]\n";
  for (const algorithms::ParameterSpec& spec : algorithm.parameters) {
    std::cout << absl::StrFormat(
        "%-28s # %s\n", absl::StrCat(spec.name, " = ", ToToml(spec.default_value)), spec.help);
  }
}

}  // namespace

int ListModels() {
  for (const models::NamedModel& model : models::NamedModels()) {
    std::cout << absl::StrFormat("%-12s %s\n%-12s %s\n", model.name, model.summary, "",
                                 absl::StrJoin(model.layers, " · "));
  }
  return kExitOk;
}

int ListAlgorithms(const std::string& name) {
  const algorithms::Registry registry = Builtins();
  if (name.empty()) {
    for (const algorithms::Description* algorithm : registry.All()) {
      std::cout << absl::StrFormat("%-12s %s (%s)\n", algorithm->name, algorithm->summary,
                                   algorithm->paper);
    }
    return kExitOk;
  }
  const auto found = registry.Find(name);
  if (!found.ok()) {
    std::cerr << "macaw: error: " << found.status().message() << std::endl;
    return kExitUsage;
  }
  PrintDescription(**found);
  return kExitOk;
}

int ListPartitions() {
  for (const data::Choice& scheme : data::PartitionSchemes()) {
    std::cout << absl::StrFormat("%-18s %s\n", scheme.name, scheme.description);
  }
  return kExitOk;
}

int PrintConfigHelp() {
  std::cout << "# Every key of a configuration: default, meaning, what is allowed. A \"…\" has no "
               "fixed default.\n\n"
            << ConfigHelp(Builtins());
  return kExitOk;
}

}  // namespace macaw::cli
