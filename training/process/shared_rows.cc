#include "training/process/shared_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "training/sequences.h"

namespace macaw::training::process {
namespace {

constexpr uint64_t kAligned = 64;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

}  // namespace

SharedRows::SharedRows(const TrainerSetup& setup, std::unique_ptr<SharedMemory> memory)
    : gather_(setup.feature_type, setup.spec.input_shape, setup.transform, setup.dtype),
      dtype_(setup.dtype),
      task_(setup.task),
      outputs_(static_cast<uint64_t>(setup.spec.outputs)),
      positions_(setup.task == TaskKind::kNextToken
                     ? static_cast<uint64_t>(setup.spec.input_shape.front())
                     : 1),
      tokens_(setup.feature_type == data::FeatureType::kI32),
      targets_(setup.task == TaskKind::kRegression),
      memory_(std::move(memory)) {}

absl::StatusOr<std::shared_ptr<SharedRows>> SharedRows::Make(const TrainerSetup& setup) {
  MACAW_RETURN_IF_ERROR(
      data::BatchGather::Check(setup.feature_type, setup.spec.input_shape, setup.transform));
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory,
                         SharedMemory::MakeGrowing("macaw-program-rows"));
  MACAW_RETURN_IF_ERROR(memory->Grow(1));
  return std::shared_ptr<SharedRows>(new SharedRows(setup, std::move(memory)));
}

absl::StatusOr<SharedRows::Place> SharedRows::Put(const data::Rows& rows, uint64_t begin,
                                                  uint64_t end) {
  if (begin > end || end > rows.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("rows ", begin, " to ", end, " of ", rows.size(), " were asked for"));
  }
  if (begin < end && rows.block.features == nullptr) {
    return absl::FailedPreconditionError(
        "workers.give_rows: the data is only declared (data.source), so there are no rows to give");
  }
  const uint64_t count = end - begin, wide = SizeOf(dtype_);
  const bool lengths = rows.block.lengths != nullptr;
  Place place{.rows = count};
  place.labels = Aligned(count * gather_.example_bytes());
  place.outputs = Aligned(place.labels + count * (targets_ ? wide : sizeof(int64_t)));
  uint64_t all = Aligned(place.outputs + count * positions_ * outputs_ * wide);
  if (lengths) place.lengths = std::exchange(all, all + count * sizeof(int32_t));
  MACAW_RETURN_IF_ERROR(Annotate(memory_->Grow(all), "workers.give_rows"));
  place.bytes = memory_->bytes();

  chosen_.resize(count);
  std::iota(chosen_.begin(), chosen_.end(), static_cast<uint32_t>(begin));
  gather_.Gather(rows, chosen_, /*augment=*/nullptr,
                 {At<std::byte>(place.features), count * gather_.example_bytes()},
                 {At<int64_t>(place.labels), targets_ ? 0 : count},
                 {At<std::byte>(place.labels), targets_ ? count * wide : 0});
  if (lengths) {
    auto* const out = At<int32_t>(*place.lengths);
    for (uint64_t i = 0; i < count; ++i) out[i] = rows.block.lengths[rows.at(chosen_[i])];
  }
  return place;
}

absl::Status SharedRows::Rate(const Place& place, const Objective& objective,
                              std::span<double> sums) {
  const auto* const own = At<const int64_t>(place.labels);
  classes_.clear();
  if (task_ == TaskKind::kNextToken) {
    const auto* const tokens = At<const int32_t>(place.features);
    classes_.resize(place.rows * positions_);
    for (uint64_t row = 0; row < place.rows; ++row) {
      uint64_t used = positions_;
      if (place.lengths.has_value()) {
        const auto* const lengths = At<const int32_t>(*place.lengths);
        used = std::clamp<int64_t>(lengths[row], 0, static_cast<int64_t>(positions_));
      }
      LabelPositions({tokens + row * positions_, positions_}, used, own[row],
                     classes_.data() + row * positions_);
    }
  } else if (!targets_) {
    classes_.assign(own, own + place.rows);
  }
  MACAW_RETURN_IF_ERROR(objective.CheckClasses(classes_));
  DispatchDType(dtype_, [&]<typename T>(T) {
    const auto* const outputs = At<const T>(place.outputs);
    Labels<T> rated{.classes = classes_};
    if (targets_) rated.targets = {At<const T>(place.labels), place.rows};
    const double rows = static_cast<double>(place.rows);
    const Mean mean = targets_ ? Mean{.divisor = rows, .rows = rows} : objective.MeanOf(rated);
    objective.Rate<T>(std::span(outputs, place.rows * positions_ * outputs_), rated, mean, {},
                      sums);
  });
  return absl::OkStatus();
}

}  // namespace macaw::training::process
