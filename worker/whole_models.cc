#include "worker/whole_models.h"

#include <algorithm>
#include <utility>

namespace macaw::worker {

Digest WholeModels::base() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->base;
}

void WholeModels::TakeBase(const Digest& digest, ConstVectorView base) {
  FlatVector whole(parts_->whole);
  parts_->base.Insert(base, whole.view());
  absl::MutexLock lock(&state_->mutex);
  std::erase_if(state_->held, [](const Held& held) { return held.users == 0; });
  state_->held.push_back({.vector = std::move(whole), .holds = {}});
  state_->base = digest;
}

HeldModel WholeModels::Of(const TrainedPart& trained) {
  State& state = *state_;
  absl::MutexLock lock(&state.mutex);
  auto found = std::ranges::find(state.held, trained.whole, &Held::holds);
  if (found == state.held.end()) {
    found = std::ranges::find(state.held, 0, &Held::users);
    if (found == state.held.end()) {
      state.held.push_back({.vector = state.held.front().vector.Clone(), .holds = {}});
      found = std::prev(state.held.end());
    }
    parts_->trained.Insert(trained.vector, found->vector.view());
    found->holds = trained.whole;
  }
  ++found->users;
  Held* const held = &*found;
  return {
      .view = std::as_const(held->vector).view(),
      .keep = {&held->vector, [kept = state_, held](const FlatVector*) { GiveBack(*kept, held); }}};
}

void WholeModels::GiveBack(State& state, Held* held) {
  absl::MutexLock lock(&state.mutex);
  if (--held->users > 0) return;
  // One that is not used is enough.
  const auto unused = std::ranges::count(state.held, 0, &Held::users);
  if (unused > 1) state.held.remove_if([held](const Held& other) { return &other == held; });
}

}  // namespace macaw::worker
