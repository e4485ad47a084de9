#include "training/batch_order.h"

#include <algorithm>
#include <numeric>

namespace macaw::training {

void BatchOrder::Start(StreamKey key, uint32_t stage, uint64_t rows, const LocalConfig& local,
                       Single single) {
  key_ = key;
  key_.purpose = Purpose::kShuffle;
  stage_ = stage;
  batch_ = local.batch_size == 0 ? rows : local.batch_size;
  per_epoch_ = 0;
  if (rows > 0) per_epoch_ = local.drop_last ? rows / batch_ : (rows + batch_ - 1) / batch_;
  const bool ragged = per_epoch_ > 1 && !local.drop_last && rows % batch_ == 1;
  joins_ = single == Single::kJoin && ragged;
  if (joins_) --per_epoch_;
  steps_ = local.steps > 0 ? local.steps : per_epoch_ * local.epochs;
  if (per_epoch_ == 0) steps_ = 0;
  taken_ = 0;
  within_ = 0;
  next_epoch_ = 0;
  epoch_ = 0;
  shuffle_ = local.shuffle;
  order_.resize(rows);
  if (!shuffle_) std::iota(order_.begin(), order_.end(), 0u);
}

void BatchOrder::BeginEpoch() {
  epoch_ = next_epoch_++;
  if (!shuffle_) return;
  // Start from stored order each time, so that an epoch does not depend on earlier epochs.
  std::iota(order_.begin(), order_.end(), 0u);
  key_.extra = (static_cast<uint64_t>(stage_) << 32) | epoch_;
  RandomStream stream(key_);
  stream.Shuffle(std::span(order_));
}

std::span<const uint32_t> BatchOrder::Next() {
  if (taken_ == steps_) return {};
  if (within_ == 0) BeginEpoch();
  ++taken_;
  const uint64_t begin = within_ * batch_;
  const bool last = ++within_ == per_epoch_;
  if (last) within_ = 0;
  const bool longer = joins_ && last;
  const uint64_t count = std::min<uint64_t>(batch_ + (longer ? 1 : 0), order_.size() - begin);
  return std::span<const uint32_t>(order_).subspan(begin, count);
}

}  // namespace macaw::training
