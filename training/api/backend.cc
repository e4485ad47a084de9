#include "training/api/backend.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

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
  setup.feature_type = feature_type;
  setup.dtype = run.dtype;
  return setup;
}

absl::Status ClientFault(absl::string_view message) {
  absl::Status status = absl::UnknownError(message);
  status.SetPayload(kClientFault, absl::Cord());
  return status;
}

bool IsClientFault(const absl::Status& status) {
  return status.GetPayload(kClientFault).has_value();
}

absl::Status Backend::DescribeScript(const std::string& /*script*/,
                                     const std::string& /*out*/) const {
  return absl::UnimplementedError(absl::StrCat("the back end ", name(), " reads no TorchScript"));
}

}  // namespace macaw::training
