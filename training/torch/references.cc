#include "training/torch/references.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "models/network.h"
#include "training/api/hooks.h"
#include "training/stage_inputs.h"
#include "training/torch/replica.h"

namespace macaw::training {

absl::StatusOr<std::vector<std::vector<at::Tensor>>> References::Of(
    const Stage& stage, const std::vector<StageOutcome>& before, TaskKind task) {
  std::vector<std::vector<at::Tensor>> tensors;
  if (stage.hooks == nullptr || !stage.hooks->representations) return tensors;
  if (stage.hooks->loss) {
    return absl::InvalidArgumentError(
        "has a loss of its own and one on representations: put the second into the first");
  }
  if (task == TaskKind::kNextToken) {
    return absl::InvalidArgumentError(
        "has a loss on the representations of rows, and the task rates each position of a row");
  }
  copies_.resize(std::max(copies_.size(), stage.references.size()));
  for (size_t i = 0; i < stage.references.size(); ++i) {
    MACAW_ASSIGN_OR_RETURN(const ConstVectorView point, Resolve(stage.references[i], before));
    MACAW_RETURN_IF_ERROR(CheckVector(spec_, point, absl::StrCat("reference ", i)));
    FlatVector& copy = copies_[i];
    if (copy.empty()) copy = FlatVector(spec_.layout);
    std::memcpy(copy.view().bytes.data(), point.bytes.data(), point.bytes.size());
    tensors.push_back(
        models::ViewsOf(FlatTensor(std::as_const(copy).view()).to(device_), *spec_.layout));
  }
  return tensors;
}

}  // namespace macaw::training
