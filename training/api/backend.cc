#include "training/api/backend.h"

#include "absl/strings/str_cat.h"

namespace macaw::training {

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

absl::Status Backend::DescribeScript(const std::string& /*script*/,
                                     const std::string& /*out*/) const {
  return absl::UnimplementedError(absl::StrCat("the back end ", name(), " reads no TorchScript"));
}

}  // namespace macaw::training
