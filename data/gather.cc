#include "data/gather.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/random.h"
#include "core/status.h"
#include "data/scale.h"

namespace macaw::data {
namespace {

// ScaleRun for examples in which every element is a channel of its own.
template <typename From, typename To>
void ScaleEach(const std::byte* from, const std::vector<double>& scale,
               const std::vector<double>& shift, To* to) {
  for (size_t i = 0; i < scale.size(); ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(value) * static_cast<To>(scale[i]) + static_cast<To>(shift[i]);
  }
}

// Which of a line's pixels the place `at`, inside or outside of it, shows; -1: none. A reflection
// reaches as far as CheckAugment says.
int64_t Shown(int64_t at, int64_t extent, PadMode mode) {
  if (at >= 0 && at < extent) return at;
  switch (mode) {
    case PadMode::kZeros:
      return -1;
    case PadMode::kReflect:
      return at < 0 ? -at : 2 * (extent - 1) - at;
    case PadMode::kEdge:
      return at < 0 ? 0 : extent - 1;
  }
  return -1;
}

// Moves an image: padded by p, it would be cropped at (p + down, p + right). `image` is channels x
// height x width.
template <typename T>
void Shift(std::span<T> image, std::vector<T>& scratch, const std::vector<int64_t>& shape,
           const Move& move, PadMode mode) {
  const int64_t channels = shape[0], height = shape[1], width = shape[2];
  const int64_t right = move.right;
  // Places begin … end − 1 of a line show pixels of the image.
  const int64_t begin = std::clamp<int64_t>(-right, 0, width);
  const int64_t end = std::clamp<int64_t>(width - right, begin, width);
  scratch.assign(image.size(), T{0});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      const int64_t line = Shown(y + move.down, height, mode);
      if (line < 0) continue;
      const T* from = image.data() + (c * height + line) * width;
      T* to = scratch.data() + (c * height + y) * width;
      std::copy(from + begin + right, from + end + right, to + begin);
      if (mode == PadMode::kZeros) continue;
      for (int64_t x = 0; x < begin; ++x) to[x] = from[Shown(x + right, width, mode)];
      for (int64_t x = end; x < width; ++x) to[x] = from[Shown(x + right, width, mode)];
    }
  }
  if (move.mirror) {
    for (int64_t line = 0; line < channels * height; ++line) {
      std::reverse(scratch.begin() + line * width, scratch.begin() + (line + 1) * width);
    }
  }
  std::copy(scratch.begin(), scratch.end(), image.begin());
}

// The labels of the rows: classes or targets, whichever the data has and the caller wants.
void GatherLabels(const Rows& rows, std::span<const uint32_t> positions, DType dtype,
                  std::span<int64_t> classes, std::span<std::byte> targets) {
  const ExampleBlock& block = rows.block;
  for (size_t i = 0; i < positions.size(); ++i) {
    const uint64_t row = rows.at(positions[i]);
    if (block.classes != nullptr && !classes.empty()) classes[i] = block.classes[row];
    if (block.targets != nullptr && !targets.empty()) {
      DispatchDType(dtype, [&]<typename T>(T) {
        const T target = static_cast<T>(block.targets[row]);
        std::memcpy(targets.data() + i * sizeof(T), &target, sizeof(T));
      });
    }
  }
}

// Adds the client's noise to one example. It depends on the row alone, so it is the same in every
// epoch, stage and evaluation.
template <typename T>
void AddNoise(const NoiseKey& key, double client_noise, uint64_t row, std::span<T> example,
              std::vector<float>& scratch) {
  scratch.resize(example.size());
  RandomStream({.seed = key.seed,
                .purpose = Purpose::kNoise,
                .client = key.client,
                .extra = static_cast<uint64_t>(key.split) << 32 | row})
      .FillNormal(scratch);
  const auto level = static_cast<T>(client_noise * static_cast<double>(key.client.value + 1) /
                                    static_cast<double>(key.clients));
  for (size_t e = 0; e < example.size(); ++e) example[e] += level * static_cast<T>(scratch[e]);
}

}  // namespace

Move MoveOf(const AugmentKey& key, const TransformConfig& transform, uint32_t position) {
  RandomStream stream({.seed = key.seed,
                       .purpose = Purpose::kAugment,
                       .round = key.round,
                       .client = key.client,
                       .extra = uint64_t{key.epoch} << 32 | position});
  const auto reach = static_cast<uint64_t>(2 * transform.pad_crop + 1);
  Move move;
  move.down = static_cast<int64_t>(stream.Below(reach)) - transform.pad_crop;
  move.right = static_cast<int64_t>(stream.Below(reach)) - transform.pad_crop;
  move.mirror = transform.flip && (stream.NextU32() & 1U) != 0;
  return move;
}

absl::Status CheckAugment(const TransformConfig& transform,
                          const std::vector<int64_t>& input_shape) {
  if (transform.pad_crop == 0 && !transform.flip) return absl::OkStatus();
  if (input_shape.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.augment needs images (channels x height x width), but an example is [",
        absl::StrJoin(input_shape, ", "), "]; data.input_shape can say that rows are images"));
  }
  const int64_t most = std::min(input_shape[1], input_shape[2]) - 1;
  if (transform.pad_mode == PadMode::kReflect && transform.pad_crop > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.augment.pad_crop is ", transform.pad_crop, ", but images of ", input_shape[1], " x ",
        input_shape[2], " pixels can be padded by at most ", most,
        " where data.augment.pad_mode is \"reflect\": set fewer, or \"edge\" or \"zeros\""));
  }
  return absl::OkStatus();
}

absl::Status BatchGather::Check(FeatureType type, const std::vector<int64_t>& input_shape,
                                const TransformConfig& transform) {
  if (input_shape.empty() ||
      std::any_of(input_shape.begin(), input_shape.end(), [](int64_t n) { return n < 1; })) {
    return absl::InvalidArgumentError("the input shape of the data is empty");
  }
  const auto channels = static_cast<size_t>(input_shape[0]);
  for (const auto& [key, values] : {std::pair{"mean", &transform.mean}, {"std", &transform.std}}) {
    if (values->size() > 1 && values->size() != channels) {
      return absl::InvalidArgumentError(absl::StrCat("transform ", key, " has ", values->size(),
                                                     " numbers, the data has ", channels,
                                                     " channels"));
    }
  }
  for (const double value : transform.std) {
    if (!(value > 0))
      return absl::InvalidArgumentError(
          absl::StrCat("transform std = ", value, " must be above 0"));
  }
  if (transform.pad_crop < 0 || transform.client_noise < 0) {
    return absl::InvalidArgumentError("pad_crop and client_noise must not be negative");
  }
  MACAW_RETURN_IF_ERROR(CheckAugment(transform, input_shape));
  if (type == FeatureType::kI32 && (transform.client_noise > 0 || transform.normalises() ||
                                    transform.pad_crop > 0 || transform.flip)) {
    return absl::InvalidArgumentError("tokens cannot be scaled, cropped, flipped or made noisy");
  }
  return absl::OkStatus();
}

BatchGather::BatchGather(FeatureType type, std::vector<int64_t> input_shape,
                         const TransformConfig& transform, DType dtype)
    : type_(type), shape_(std::move(input_shape)), transform_(transform), dtype_(dtype) {
  elements_ = 1;
  for (const int64_t extent : shape_) elements_ *= static_cast<size_t>(extent);
  element_bytes_ = type_ == FeatureType::kI32 ? sizeof(int32_t) : SizeOf(dtype_);
  const bool one_for_all = transform_.mean.size() <= 1 && transform_.std.size() <= 1;
  channels_ = one_for_all ? 1 : static_cast<size_t>(shape_[0]);
  plane_ = elements_ / channels_;
  const auto of = [](const std::vector<double>& values, size_t channel, double fallback) {
    return values.empty() ? fallback : values[values.size() == 1 ? 0 : channel];
  };
  for (size_t c = 0; c < channels_; ++c) {
    const double std = of(transform_.std, c, 1.0);
    scale_.push_back(transform_.scale.value_or(1.0) / std);
    shift_.push_back(-of(transform_.mean, c, 0.0) / std);
  }
  identity_ = type_ == FeatureType::kF32 && dtype_ == DType::kF32 && one_for_all &&
              scale_[0] == 1.0 && shift_[0] == 0.0;
}

void BatchGather::Gather(const Rows& rows, std::span<const uint32_t> positions,
                         const AugmentKey* augment, std::span<std::byte> features,
                         std::span<int64_t> classes, std::span<std::byte> targets) const {
  GatherLabels(rows, positions, dtype_, classes, targets);
  const bool noisy = transform_.client_noise > 0 && rows.noise.clients > 0;
  if (type_ == FeatureType::kI32 || (identity_ && augment == nullptr && !noisy)) {
    for (size_t i = 0; i < positions.size(); ++i) {
      std::memcpy(features.data() + i * example_bytes(),
                  rows.block.features + rows.at(positions[i]) * rows.block.row_bytes,
                  example_bytes());
    }
    return;
  }
  DispatchDType(dtype_, [&]<typename T>(T) {
    const bool moved = augment != nullptr && (transform_.pad_crop > 0 || transform_.flip);
    std::vector<T> scratch;
    std::vector<float> noise;
    T* to = reinterpret_cast<T*>(features.data());
    for (size_t i = 0; i < positions.size(); ++i, to += elements_) {
      const std::byte* from = rows.block.features + rows.at(positions[i]) * rows.block.row_bytes;
      const auto convert = [&]<typename From>(const From* tag) {
        if (plane_ == 1) return ScaleEach<From>(from, scale_, shift_, to);
        for (size_t c = 0; c < channels_; ++c) {
          ScaleRun(tag, from + c * plane_ * sizeof(From), plane_, static_cast<T>(scale_[c]),
                   static_cast<T>(shift_[c]), to + c * plane_);
        }
      };
      type_ == FeatureType::kU8 ? convert(static_cast<const uint8_t*>(nullptr))
                                : convert(static_cast<const float*>(nullptr));
      const std::span<T> example(to, elements_);
      if (noisy) {
        const auto [key, row] = rows.Own(positions[i]);
        AddNoise(key, transform_.client_noise, row, example, noise);
      }
      if (!moved) continue;
      const Move move = MoveOf(*augment, transform_, positions[i]);
      if (move.down != 0 || move.right != 0 || move.mirror)
        Shift(example, scratch, shape_, move, transform_.pad_mode);
    }
  });
}

}  // namespace macaw::data
