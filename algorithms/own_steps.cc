#include "algorithms/own_steps.h"

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::algorithms {

absl::Status NeedsOwnSteps(const Setup& setup) {
  if (setup.local.optimizer != "sgd") {
    return absl::InvalidArgumentError(
        absl::StrCat("local.optimizer = \"", setup.local.optimizer,
                     "\": the rule says each step of a client; use \"sgd\""));
  }
  if (setup.local.momentum != 0) {
    return absl::InvalidArgumentError(
        "local.momentum: the rule says each step of a client, which has none; set it to 0");
  }
  return NeedsNoClip(setup);
}

absl::Status NeedsNoClip(const Setup& setup) {
  if (setup.local.clip_norm == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "local.clip_norm would clip a step's first gradient and not those that the rule computes "
      "beside it: set it to 0");
}

}  // namespace macaw::algorithms
