#include <gnu/libc-version.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "training/backends.h"
#include "training/fused/fused_trainer.h"

namespace macaw::training {
namespace {

std::string Libraries() {
  return absl::StrCat("macaw-fused ", fused::kVersion, ", glibc ", gnu_get_libc_version());
}

class Fused final : public Backend {
 public:
  std::string name() const override { return kFusedBackend; }

  absl::Status Supports(const TrainerSetup& setup) const override { return fused::Supports(setup); }

  absl::StatusOr<NumericProfile> Profile(const TrainerSetup& setup) const override {
    const absl::StatusOr<fused::Isa> isa = fused::ChooseIsa(setup.backend.instruction_set);
    return NumericProfile{.trainer = kFusedBackend,
                          .instruction_set = std::string(isa.ok() ? fused::Name(*isa) : "none"),
                          .libraries = Libraries()};
  }

  absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
      const TrainerSetup& setup) const override {
    MACAW_ASSIGN_OR_RETURN(const fused::Isa isa, fused::ChooseIsa(setup.backend.instruction_set));
    return fused::FusedTrainer::Make(setup, isa);
  }

  std::string Report() const override {
    return absl::StrCat(
        Libraries(), ", kernels for ",
        absl::StrJoin(fused::SupportedIsas(), ", ", [](std::string* out, fused::Isa isa) {
          absl::StrAppend(out, fused::Name(isa));
        }));
  }
};

}  // namespace

const Backend& FusedBackend() {
  static const Fused backend;
  return backend;
}

}  // namespace macaw::training
