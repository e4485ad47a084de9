#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/clock.h"

namespace macaw::server {

// A deadline for each of many things, the earliest first. A heap with lazy deletion: a deadline
// that is moved to a later time costs a look-up, and one that is moved to an earlier time or that
// passes costs O(log n). So a thing that is put off again and again, as a session by each of its
// heartbeats, is nearly free. `Id` is ordered and has a hash. Pure; one thread.
template <typename Id>
class Deadlines {
 public:
  // Replaces the deadline of `id`, if it has one.
  void Set(Id id, TimePoint when) {
    State& state = states_.try_emplace(id).first->second;
    state.when = when;
    if (when < state.noted) Note(id, state);
  }
  // As Set, but never moves the deadline to a later time.
  void SetIfEarlier(Id id, TimePoint when) {
    const auto it = states_.find(id);
    if (it == states_.end() || when < it->second.when) Set(id, when);
  }
  void Remove(Id id) { states_.erase(id); }
  void Clear() {
    states_.clear();
    heap_.clear();
  }

  // When to call Pop: never later than the earliest deadline, and seldom earlier. Constant time.
  TimePoint next() const { return heap_.empty() ? TimePoint::max() : heap_.front().first; }

  // Removes a deadline that is not after `now`, and returns whose it was; nullopt: there is none.
  std::optional<Id> Pop(TimePoint now) {
    while (!heap_.empty() && heap_.front().first <= now) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const auto [when, id] = heap_.back();
      heap_.pop_back();
      const auto it = states_.find(id);
      if (it == states_.end() || it->second.noted != when) continue;  // removed or noted again
      State& state = it->second;
      if (state.when <= now) {
        states_.erase(it);
        return id;
      }
      state.noted = TimePoint::max();
      Note(id, state);
    }
    return std::nullopt;
  }

 private:
  struct State {
    TimePoint when{};
    TimePoint noted = TimePoint::max();  // the time of its entry in the heap; other entries are old
  };

  void Note(const Id& id, State& state) {
    if (state.when == TimePoint::max()) return;
    if (heap_.size() > 4 * states_.size() + kSmall) DropOldEntries();
    state.noted = state.when;
    heap_.emplace_back(state.when, id);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  void DropOldEntries() {
    std::erase_if(heap_, [this](const auto& entry) {
      const auto it = states_.find(entry.second);
      return it == states_.end() || it->second.noted != entry.first;
    });
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  static constexpr size_t kSmall = 64;
  absl::flat_hash_map<Id, State> states_;
  std::vector<std::pair<TimePoint, Id>> heap_;  // the earliest in front
};

}  // namespace macaw::server
