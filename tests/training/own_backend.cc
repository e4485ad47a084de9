// A back end as somebody else would write it: a module with a class and one line. It trains as the
// fused one does and says that it takes classification only.
#include "training/backends.h"

namespace {

class Own final : public macaw::training::Backend {
 public:
  std::string name() const override { return "own"; }
  absl::Status Supports(const macaw::training::TrainerSetup& setup) const override {
    if (setup.task == macaw::TaskKind::kClassification) return absl::OkStatus();
    return absl::UnimplementedError("it knows classification only");
  }
  absl::StatusOr<macaw::NumericProfile> Profile(
      const macaw::training::TrainerSetup&) const override {
    return macaw::NumericProfile{.trainer = "own", .instruction_set = "any", .libraries = "own 7"};
  }
  absl::StatusOr<std::unique_ptr<macaw::training::LocalTrainer>> MakeTrainer(
      const macaw::training::TrainerSetup& setup) const override {
    return macaw::training::FusedBackend().MakeTrainer(setup);
  }
  std::string Report() const override { return "of our own"; }
};

}  // namespace

MACAW_BACKEND([]() -> const macaw::training::Backend* {
  static const Own own;
  return &own;
})
