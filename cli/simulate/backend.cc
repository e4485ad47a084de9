#include "cli/simulate/backend.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "algorithms/around/channels.h"
#include "cli/config/key_error.h"
#include "cli/config/resolve.h"
#include "cli/process/programs.h"
#include "core/spelling.h"
#include "core/status.h"
#include "training/api/round_local.h"
#include "training/backends.h"

namespace macaw::cli {
namespace {

std::vector<ConstVectorView> ViewsOf(const std::vector<FlatVector>& vectors) {
  std::vector<ConstVectorView> views;
  for (const FlatVector& vector : vectors) views.push_back(vector.view());
  return views;
}

// A program of the owner's only trains. Asks the rule for a client's first turn, as a worker does
// before the run: what else it wants is found before a folder is made.
absl::Status CheckOnlyTrains(const Config& config, const models::ModelSpec& spec,
                             const algorithms::Registry& registry) {
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description rule, registry.RuleOf(config.run));
  if (rule.in_python) return absl::OkStatus();  // its half would be started for this alone
  const algorithms::Setup setup = algorithms::SetupOf(config.run, spec.layout);
  MACAW_ASSIGN_OR_RETURN(const algorithms::Schema schema, algorithms::MakeSchema(rule, setup));
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<algorithms::ClientAlgorithm> client,
                         rule.client(setup));
  std::vector<LayoutPtr> kept;
  for (const algorithms::NamedLayout& item : schema.state) kept.push_back(item.layout);
  const std::vector<FlatVector> down = Zeros(algorithms::DownLayouts(schema, Phase(0))),
                                state = Zeros(kept);
  const std::vector<ConstVectorView> sent =
      algorithms::ParallelToDown(schema, Phase(0), ViewsOf(down));
  const std::vector<ConstVectorView> states = ViewsOf(state);
  const algorithms::ClientContext turn{.round = Round(1),
                                       .examples = 1,
                                       .local = training::RoundLocal(config.run, Round(1)),
                                       .broadcast = sent,
                                       .state = states,
                                       .first_turn = true,
                                       .seed = config.run.seed,
                                       .schema = &schema};
  algorithms::Workspace workspace;
  MACAW_ASSIGN_OR_RETURN(const training::LocalPlan plan, client->Prepare(turn, workspace));
  for (const training::Stage& stage : plan.stages) {
    if (stage.kind == training::StageKind::kTrain) continue;
    const char* const what = stage.kind == training::StageKind::kLoss ? "loss" : "gradient";
    return WithKeyError(
        absl::InvalidArgumentError(absl::StrCat(
            "workers.backend is \"process\", but ", config.run.algorithm.name,
            " also asks for the ", what,
            " over all rows of a client, and a program of yours only trains: use \"auto\" (in "
            "Python leave train= and loss= out), or a rule that only trains, such as fedavg")),
        {.key = "workers.backend"});
  }
  return absl::OkStatus();
}

}  // namespace

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
  if (setup.backend.name == training::kProcessBackend)
    return CheckOnlyTrains(config, spec, algorithms);
  if (setup.backend.name != training::kCudaBackend) return absl::OkStatus();
  return backends.ProfileOf(setup).status();  // whether there are such GPUs
}

absl::Status CheckWorkers(const Config& config) {
  const uint32_t wanted = config.node.server.workers;
  const uint32_t started = config.node.workers.processes + config.node.workers.owners;
  if (wanted <= started) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("server.workers = ", wanted, ", but only ", Counted(started, "worker"),
                   " would be started (workers.processes, workers.owners): no round would begin"));
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
