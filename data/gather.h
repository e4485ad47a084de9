#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/ids.h"
#include "core/vector.h"
#include "data/dataset.h"
#include "plan/transform.h"

namespace macaw::data {

// The key of a batch's random transforms (crops, flips). Evaluation passes none.
struct AugmentKey {
  uint64_t seed = 0;
  Round round{};
  ClientId client{};
  uint32_t epoch = 0;
};

// How an image is moved at random: by (down, right) pixels, padded where it has none, then mirrored
// from left to right. The same as padding, cropping and flipping.
struct Move {
  int64_t down = 0;  // −pad_crop … pad_crop
  int64_t right = 0;
  bool mirror = false;
};
// The move of the row at `position` of a client.
Move MoveOf(const AugmentKey& key, const TransformConfig& transform, uint32_t position);

// Checks data.augment against examples of this shape: they are images, and reflections fit into
// them. Errors name the key.
absl::Status CheckAugment(const TransformConfig& transform,
                          const std::vector<int64_t>& input_shape);

// Gathers batches: copies chosen rows of a client and their labels into a batch buffer, converted
// to the run's dtype, normalised, with the client's own noise (Rows::noise), and augmented. A batch
// starts at a multiple of 64 bytes, and its bits depend only on (rows, key), not on where the rows
// are stored. Immutable after construction, thread-safe.
class BatchGather {
 public:
  // Checks what the constructor requires: one mean and std for all channels or one per channel, std
  // > 0, CheckAugment, no normalisation of tokens. The message names the key of [data] or [model].
  static absl::Status Check(FeatureType type, const std::vector<int64_t>& input_shape,
                            const TransformConfig& transform);

  BatchGather(FeatureType type, std::vector<int64_t> input_shape, const TransformConfig& transform,
              DType dtype);

  // Gathers the rows at `positions` (0 … rows.size()−1). Writes positions.size() examples to
  // `features` (float or double, by the dtype; int32 for tokens). Writes one label per row, to
  // `classes` (int64) or to `targets` (of the dtype's type); pass the one that the data has.
  // `augment` is null outside training.
  void Gather(const Rows& rows, std::span<const uint32_t> positions, const AugmentKey* augment,
              std::span<std::byte> features, std::span<int64_t> classes,
              std::span<std::byte> targets) const;

  size_t example_elements() const { return elements_; }
  size_t example_bytes() const { return elements_ * element_bytes_; }
  // How stored values are normalised: x' = x · scale()[c] + shift()[c], with one number for all or
  // one per channel; is_identity: they are copied unchanged.
  std::span<const double> scale() const { return scale_; }
  std::span<const double> shift() const { return shift_; }
  bool is_identity() const { return identity_; }

 private:
  FeatureType type_;
  std::vector<int64_t> shape_;
  TransformConfig transform_;
  DType dtype_;
  size_t elements_ = 0;
  size_t element_bytes_ = 0;
  bool identity_ = false;  // features are copied unchanged
  size_t channels_ = 1;    // of equal size: `plane_` elements each
  size_t plane_ = 1;
  std::vector<double> scale_;  // per channel: x' = x · scale_[c] + shift_[c]
  std::vector<double> shift_;
};

}  // namespace macaw::data
