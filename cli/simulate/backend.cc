#include "cli/simulate/backend.h"

#include "cli/config/resolve.h"
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
  setup.slices = algorithm->has_slices;
  setup.statistics = algorithm->has_statistics;
  setup.backend = config.node.workers.backend;
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  // Modules stay loaded, so the back ends may go.
  training::Backends backends(training::Backends::FolderBeside(programs));
  MACAW_RETURN_IF_ERROR(backends.CheckFor(setup));
  if (setup.backend.name != training::kCudaBackend) return absl::OkStatus();
  return backends.ProfileOf(setup).status();  // whether there are such GPUs
}

uint32_t SlotsHere(const Config& config) {
  const auto& workers = config.node.workers;
  const absl::StatusOr<std::string> programs = ProgramFolder();
  if (workers.slots > 0 || workers.backend.name != training::kCudaBackend || !programs.ok())
    return SlotsPerProcess(workers);
  training::Backends backends(training::Backends::FolderBeside(*programs));
  // Where they cannot be counted, CheckBackend and the worker say why.
  return SlotsPerProcess(workers, backends.DevicesFor(workers.backend).value_or(1));
}

}  // namespace macaw::cli
