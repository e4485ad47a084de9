#include <ATen/Version.h>
#include <gnu/libc-version.h>
#include <torch/version.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "training/api/trainer.h"
#include "training/fused/fused_trainer.h"
#include "training/make_trainer.h"

namespace macaw::training {
namespace {

// MKL and oneDNN also choose their kernels by the processor's manufacturer.
absl::string_view Maker() {
  if (__builtin_cpu_is("intel")) return "intel";
  if (__builtin_cpu_is("amd")) return "amd";
  return "other";
}

}  // namespace

NumericProfile ProfileOf(const TrainerSetup& setup) {
  const NumericProfile eager = EagerProfile();
  const absl::StatusOr<fused::Isa> isa = fused::ChooseIsa(setup.instruction_set);
  if (setup.local.trainer == "eager" || !isa.ok() || !fused::Supports(setup).ok()) return eager;
  if (setup.local.trainer == "auto" && !fused::Prefers(setup, *isa).ok()) return eager;
  NumericProfile profile{.trainer = "fused", .instruction_set = std::string(fused::Name(*isa))};
  profile.libraries = absl::StrCat("macaw-fused ", fused::kVersion);
  absl::StrAppend(&profile.libraries,
                  setup.local.trainer == "auto"
                      ? absl::StrCat(", ", eager.libraries, ", ", eager.instruction_set)
                      : absl::StrCat(", glibc ", gnu_get_libc_version()));
  return profile;
}

NumericProfile EagerProfile() {
  return {
      .trainer = "eager",
      .instruction_set =
          absl::StrCat(absl::AsciiStrToLower(at::get_cpu_capability()), " ", Maker()),
      .libraries = absl::StrCat("libtorch ", TORCH_VERSION, ", glibc ", gnu_get_libc_version())};
}

}  // namespace macaw::training
