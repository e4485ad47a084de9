#include "training/api/backend.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "device/collective.h"

namespace macaw::training {
namespace {

constexpr char kClientFault[] = "macaw/client-fault";  // marks the status of IsClientFault

}  // namespace

TrainerSetup TrainerSetup::Of(const RunPlan& run, const models::ModelSpec& spec,
                              data::FeatureType feature_type) {
  TrainerSetup setup;
  setup.spec = spec;
  setup.task = run.task;
  setup.local = run.local;
  setup.transform = run.transform;
  setup.metrics = run.evaluation.metrics;
  setup.feature_type = feature_type;
  setup.dtype = run.dtype;
  return setup;
}

std::vector<TurnOutcome> LocalTrainer::RunMany(std::span<const Turn> turns) {
  std::vector<TurnOutcome> outcomes;
  if (!turns.empty()) outcomes.push_back(Run(*turns[0].plan, *turns[0].task));
  return outcomes;
}

absl::Status ClientFault(absl::string_view message) {
  absl::Status status = absl::UnknownError(message);
  status.SetPayload(kClientFault, absl::Cord());
  return status;
}

bool IsClientFault(const absl::Status& status) {
  return status.GetPayload(kClientFault).has_value();
}

absl::StatusOr<std::unique_ptr<device::Collective>> Backend::MakeCollective(
    std::vector<device::Device*> devices) const {
  return device::MakeHostCollective(std::move(devices));
}

absl::Status Backend::DescribeScript(const std::string& /*script*/,
                                     const std::string& /*out*/) const {
  return absl::UnimplementedError(absl::StrCat("the back end ", name(), " reads no TorchScript"));
}

}  // namespace macaw::training
