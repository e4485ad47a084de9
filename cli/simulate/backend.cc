#include "cli/simulate/backend.h"

#include "cli/process/programs.h"
#include "core/status.h"
#include "training/backends.h"

namespace macaw::cli {

absl::Status CheckBackend(const Config& config, const models::ModelSpec& spec,
                          const algorithms::Registry& algorithms) {
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description* const algorithm,
                         algorithms.Find(config.run.algorithm.name));
  auto setup = training::TrainerSetup::Of(
      config.run, spec, spec.takes_tokens() ? data::FeatureType::kI32 : data::FeatureType::kF32);
  setup.hooks = algorithm->has_hooks;
  setup.backend = config.node.workers.backend;
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  return training::Backends(training::Backends::FolderBeside(programs)).CheckFor(setup);
}

}  // namespace macaw::cli
