#include "training/tensor_steps.h"

#include <algorithm>
#include <map>
#include <utility>

namespace macaw::training {

Pieces PiecesOf(const std::vector<StepPieces>& moving) {
  if (moving.size() == 1) return moving.front().pieces;
  Pieces all;
  for (const StepPieces& part : moving)
    all.insert(all.end(), part.pieces.begin(), part.pieces.end());
  std::ranges::sort(all);
  return all;
}

void TensorSteps::Start(const ParameterLayout& layout, const std::vector<bool>* trainable) {
  layout_ = &layout;
  const std::vector<LayoutEntry>& entries = layout.entries();
  trained_.resize(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    trained_[i] =
        entries[i].group == Group::kParameter && (trainable == nullptr || (*trainable)[i]);
  }
  taken_.assign(entries.size(), 0);
  even_ = true;
  all_ = {{.step = 0, .pieces = TrainablePieces(layout, trainable)}};
}

const std::vector<StepPieces>& TensorSteps::Next(const std::vector<bool>& reached) {
  all_move_ = true;
  for (size_t i = 0; i < trained_.size(); ++i) {
    if (!trained_[i]) continue;
    if (reached[i])
      ++taken_[i];
    else
      all_move_ = false;
  }
  even_ = even_ && all_move_;
  if (even_) {
    ++all_.front().step;
    return all_;
  }
  std::map<uint64_t, std::vector<bool>> by_step;
  for (size_t i = 0; i < trained_.size(); ++i) {
    if (!trained_[i] || !reached[i]) continue;
    std::vector<bool>& entries = by_step[taken_[i]];
    entries.resize(trained_.size());
    entries[i] = true;
  }
  some_.clear();
  for (const auto& [step, entries] : by_step)
    some_.push_back({.step = step, .pieces = TrainablePieces(*layout_, &entries)});
  return some_;
}

}  // namespace macaw::training
