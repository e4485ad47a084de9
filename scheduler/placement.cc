#include "scheduler/placement.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace macaw::scheduler {
namespace {

using Terms = std::array<double, 7>;

// A long client on a slow slot may take much longer than predicted, and no other slot can take it
// over. So such a slot must promise an end that is earlier by this many standard deviations. Chosen
// in virtual rounds: with 30 % noise on slots of three speeds it halves the loss. Without noise,
// and on equal slots, it changes nothing.
constexpr double kAversion = 1.5, kMostAversion = 0.8;

Terms TermsOf(const Costs& costs) {
  return {costs.fixed, costs.state,    costs.row_load,   costs.row,
          costs.step,  costs.log_step, costs.uncertainty};
}

double AversionOf(const Costs& costs) {
  return std::min(kAversion * costs.uncertainty, kMostAversion);
}

}  // namespace

Placement::Placement(std::span<const WorkerInfo> workers) {
  std::map<Terms, size_t> classes;
  for (size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].slots == 0) {  // the worker gets no clients
      class_of_.push_back(0);
      first_slot_.push_back(slots_.size());
      continue;
    }
    const auto [it, fresh] = classes.try_emplace(TermsOf(workers[w].costs), fronts_.size());
    if (fresh) {
      const Costs& costs = workers[w].costs;
      fronts_.push_back({.slot = slots_.size(),
                         .fixed = costs.fixed,
                         .state = costs.state,
                         .row = costs.row_load + costs.row,
                         .step = costs.step,
                         .log_step = costs.log_step,
                         .aversion = AversionOf(costs)});
      order_.emplace_back();
    }
    class_of_.push_back(it->second);
    first_slot_.push_back(slots_.size());
    for (uint32_t s = 0; s < workers[w].slots; ++s) {
      order_[it->second].emplace(0.0, slots_.size());
      slots_.push_back({.worker = w, .number = s});
    }
  }
}

void Placement::Move(size_t slot, double until) {
  const size_t c = class_of_[slots_[slot].worker];
  Order& order = order_[c];
  auto node = order.extract({slots_[slot].free, slot});
  node.value().first = until;
  order.insert(std::move(node));
  slots_[slot].free = until;
  fronts_[c].free = order.begin()->first;
  fronts_[c].slot = order.begin()->second;
}

void Placement::Occupy(size_t worker, uint32_t slot, double until) {
  Move(first_slot_[worker] + slot, until);
}

Placement::Turn Placement::Put(const CohortEntry& entry) {
  const Work work = WorkOf(entry);
  double least = std::numeric_limits<double>::infinity();
  double finish = 0;
  size_t best = 0;
  for (const Front& front : fronts_) {
    double seconds = front.fixed + front.row * work.rows + front.step * work.steps +
                     front.log_step * work.log_steps;
    if (work.state) seconds += front.state;
    const double end = front.free + seconds;
    const double key = end + seconds * front.aversion;
    if (key < least || (key == least && front.slot < best)) {
      least = key;
      finish = end;
      best = front.slot;
    }
  }
  const Turn turn{.worker = slots_[best].worker,
                  .slot = slots_[best].number,
                  .start = slots_[best].free,
                  .finish = finish};
  Move(best, finish);
  return turn;
}

}  // namespace macaw::scheduler
