#include "training/fused/feed.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "training/stage_inputs.h"

namespace macaw::training::fused {
namespace {

bool IsIdentity(const TransformConfig& transform) {
  return !transform.normalises() && transform.pad_crop == 0 && !transform.flip &&
         transform.client_noise == 0;
}

}  // namespace

Feed::Feed(const TrainerSetup& setup, const Kernels& kernels, const Shape& in)
    : task_(setup.task),
      feature_type_(setup.feature_type),
      gather_(setup.feature_type, setup.spec.input_shape, setup.transform, DType::kF32),
      kernels_(kernels),
      lines_(in.order == Shape::Order::kSequence ? in.height : 1),
      width_(in.elements() / lines_),
      work_(setup.work),
      as_stored_(setup.feature_type == data::FeatureType::kF32 && IsIdentity(setup.transform)) {}

absl::Status Feed::Check(const data::Rows& rows) const {
  return CheckRows(rows, feature_type_, gather_.example_elements(), task_);
}

void Feed::Expect(const data::Rows& rows, std::span<const uint32_t> positions) const {
  // Prefetching too early or too much would evict data that is in use.
  constexpr size_t kMostBytes = 16384, kLine = 64;
  const size_t bytes = rows.block.row_bytes;
  const size_t count = std::min(positions.size(), kMostBytes / std::max<size_t>(bytes, 1));
  for (const uint32_t position : positions.first(count)) {
    const std::byte* const row = rows.block.features + rows.at(position) * bytes;
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
  }
}

absl::Status Feed::Load(const data::Rows& rows, std::span<const uint32_t> positions,
                        const data::AugmentKey* augment, const Objective& objective, float* in) {
  if (work_ != nullptr) work_->Count();
  const size_t n = positions.size(), pitch = RoundUp(width_), stride = lines_ * pitch;
  const bool regression = task_ == TaskKind::kRegression;
  const bool labelled = !regression && task_ != TaskKind::kReconstruction;
  classes_.resize(labelled ? n : 0);
  targets_.resize(regression ? n : 0);
  if (as_stored_) {
    const data::ExampleBlock& block = rows.block;
    addresses_.resize(n * lines_);
    size_t at = 0;
    for (size_t i = 0; i < n; ++i) {
      const uint64_t row = rows.at(positions[i]);
      const std::byte* const example = block.features + row * block.row_bytes;
      for (size_t line = 0; line < lines_; ++line)
        addresses_[at++] = example + line * width_ * sizeof(float);
      if (regression) {
        targets_[i] = block.targets[row];
      } else if (labelled) {
        classes_[i] = block.classes[row];
      }
    }
    kernels_.copy_rows(addresses_.data(), at, width_, in);
    if (task_ == TaskKind::kReconstruction) TakeInputs(n, in);
    return objective.CheckClasses(classes_);
  }
  const auto gather = [&](size_t first, size_t count) {
    const std::span<float> features(in + first * stride, count * lines_ * width_);
    const std::span<int64_t> classes(classes_);
    const std::span<float> targets(targets_);
    gather_.Gather(rows, positions.subspan(first, count), augment, std::as_writable_bytes(features),
                   labelled ? classes.subspan(first, count) : classes,
                   std::as_writable_bytes(regression ? targets.subspan(first, count) : targets));
  };
  if (width_ == pitch) {
    gather(0, n);
  } else {
    for (size_t i = 0; i < n; ++i) {
      gather(i, 1);
      // The lines move apart, the last one first, so that none is overwritten.
      float* const example = in + i * stride;
      for (size_t line = lines_; line-- > 0;) {
        float* const to = example + line * pitch;
        if (line > 0)
          std::copy_backward(example + line * width_, example + (line + 1) * width_, to + width_);
        std::fill(to + width_, to + pitch, 0.0f);
      }
    }
  }
  if (task_ == TaskKind::kReconstruction) TakeInputs(n, in);
  return objective.CheckClasses(classes_);
}

void Feed::TakeInputs(size_t rows, const float* in) {
  const size_t pitch = RoundUp(width_);
  targets_.resize(rows * lines_ * width_);
  for (size_t line = 0; line < rows * lines_; ++line)
    std::copy_n(in + line * pitch, width_, targets_.data() + line * width_);
}

}  // namespace macaw::training::fused
