#include "worker/run_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregation/exact_sum.h"
#include "algorithms/around/channels.h"
#include "core/status.h"
#include "data/gather.h"
#include "data/label_map.h"
#include "data/trigger.h"
#include "models/script.h"
#include "training/api/trainer.h"
#include "worker/registration.h"

namespace macaw::worker {

absl::Status CheckPlugins(const std::vector<std::string>& wanted,
                          const std::vector<std::string>& loaded) {
  if (wanted == loaded) return absl::OkStatus();
  const auto text = [](const std::vector<std::string>& plugins) {
    return plugins.empty() ? std::string("none") : absl::StrJoin(plugins, ", ");
  };
  return absl::FailedPreconditionError(absl::StrCat(
      "the run has other plug-ins than this worker (name, version, digest): ", text(wanted),
      " against ", text(loaded), "; give this node's `plugins` the same files"));
}

absl::StatusOr<NumericProfile> ProfileFor(const std::optional<RunPlan>& run,
                                          const data::DatasetInfo& info, const Options& options,
                                          const algorithms::Registry& registry,
                                          training::Backends& backends) {
  training::TrainerSetup setup;
  if (run.has_value()) {
    MACAW_RETURN_IF_ERROR(CheckPlugins(run->plugins, options.plugins));
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, models::BuildSpec(run->model, run->dtype));
    MACAW_ASSIGN_OR_RETURN(const algorithms::Description* algorithm,
                           registry.Find(run->algorithm.name));
    setup = training::TrainerSetup::Of(*run, spec, info.feature_type);
    setup.hooks = algorithm->has_hooks;
    setup.slices = algorithm->has_slices;
    setup.statistics = algorithm->has_statistics;
  }
  setup.backend = options.backend;
  if (!run.has_value()) return training::FusedBackend().Profile(setup);
  return backends.ProfileOf(setup);
}

absl::StatusOr<algorithms::Schema> SchemaOf(const RunPlan& run, const models::ModelSpec& spec,
                                            const algorithms::Registry& registry) {
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description algorithm, registry.RuleOf(run));
  return algorithms::MakeSchema(algorithm, algorithms::SetupOf(run, spec.layout));
}

absl::StatusOr<RunContext> MakeRunContext(const Options& options,
                                          const fleet::RegisterReply& registration,
                                          const algorithms::Registry& registry,
                                          training::Backends& backends) {
  RunContext context{.run = registration.run,
                     .epoch = registration.epoch,
                     .backends = &backends,
                     .backend = options.backend,
                     .redact_errors = options.redact_errors};
  MACAW_ASSIGN_OR_RETURN(context.spec, models::BuildSpec(context.run.model, context.run.dtype));
  MACAW_RETURN_IF_ERROR(data::CheckChanges(context.run.transform, context.run.task,
                                           LabelClasses(context.run),
                                           context.run.model.input_shape));
  MACAW_RETURN_IF_ERROR(data::CheckAugment(context.run.transform, context.run.model.input_shape));
  MACAW_RETURN_IF_ERROR(data::CheckTrigger(context.run.attack, context.run.task,
                                           LabelClasses(context.run),
                                           context.run.model.input_shape));
  context.hostile = HostileOf(context.run);
  if (context.run.attack.on() && context.run.attack.changes_rows() &&
      context.backend.name == training::kProcessBackend && !context.backend.program.give_rows) {
    return absl::UnimplementedError(
        absl::StrCat("the owner's own program reads its own rows, so attack.kind = \"",
                     context.run.attack.kind, "\" does not reach them"));
  }
  if (context.run.model.name == models::kScriptName) {
    MACAW_ASSIGN_OR_RETURN(context.spec.script,
                           models::ReadScript(options.script, context.run.model.script_digest));
  }
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description algorithm, registry.RuleOf(context.run));
  const algorithms::Setup setup = algorithms::SetupOf(context.run, context.spec.layout);
  MACAW_ASSIGN_OR_RETURN(context.schema, algorithms::MakeSchema(algorithm, setup));
  MACAW_ASSIGN_OR_RETURN(context.algorithm, algorithm.client(setup));
  context.hooks = algorithm.has_hooks;
  context.slices = algorithm.has_slices;
  context.statistics = algorithm.has_statistics;
  return context;
}

absl::StatusOr<Demand> DemandOf(const models::ModelSpec& spec, const algorithms::Schema& schema,
                                const data::Dataset& dataset) {
  Demand demand{.parameters = spec.layout->count(),
                .rows = LargestClient(dataset),
                .joins = spec.has_buffers()};
  for (const LayoutPtr& layout : algorithms::DownLayouts(schema, Phase(0)))
    demand.bytes_down += layout->bytes();
  if (schema.parts != nullptr) {
    demand.base_bytes = schema.parts->base.layout()->bytes();
    demand.bytes_down -= schema.parts->whole->bytes() - schema.parts->trained.layout()->bytes();
  }
  MACAW_ASSIGN_OR_RETURN(const aggregation::ExactSum sum,
                         aggregation::ExactSum::Make(algorithms::UpChannels(schema, Phase(0)),
                                                     aggregation::GridOrder()));
  demand.bytes_up = sum.MostBytesAlone();
  return demand;
}

}  // namespace macaw::worker
