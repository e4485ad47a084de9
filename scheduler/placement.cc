#include "scheduler/placement.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

namespace macaw::scheduler {
namespace {

using Terms = std::array<double, 9>;

// A long client on a slow slot may take much longer than predicted, and no other slot can take it
// over. So such a slot must promise an end that is earlier by this many standard deviations. Chosen
// in virtual rounds: with 30 % noise on slots of three speeds it halves the loss. Without noise,
// and on equal slots, it changes nothing.
constexpr double kAversion = 1.5, kMostAversion = 0.8;

Terms TermsOf(const Costs& costs) {
  return {costs.fixed, costs.state, costs.state_move, costs.row_load,   costs.row_move,
          costs.row,   costs.step,  costs.log_step,   costs.uncertainty};
}

double AversionOf(const Costs& costs) {
  return std::min(kAversion * costs.uncertainty, kMostAversion);
}

}  // namespace

Placement::Placement(std::span<const WorkerInfo> workers) : workers_(workers) {
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
                         .row = costs.row_load + costs.row,
                         .step = costs.step,
                         .log_step = costs.log_step,
                         .aversion = AversionOf(costs),
                         .costs = &costs});
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
  latest_ = std::max(latest_, until);
}

void Placement::Occupy(size_t worker, uint32_t slot, double until) {
  Move(first_slot_[worker] + slot, until);
}

Placement::Turn Placement::Put(const CohortEntry& entry) {
  const Work work = WorkOf(entry);
  double least = std::numeric_limits<double>::infinity();
  double finish = 0;
  size_t best = 0;
  const auto consider = [&](size_t slot, double free, double seconds, double aversion) {
    const double end = free + seconds;
    const double key = end + seconds * aversion;
    if (key < least || (key == least && slot < best)) {
      least = key;
      finish = end;
      best = slot;
    }
  };
  // A class of workers is judged by a worker that holds none of this client's data. Workers that
  // hold some are considered separately.
  const bool placed = work.state_at != WorkerId{} || work.data_at != WorkerId{};
  const bool plain = !placed && !work.state;
  for (size_t c = 0; c < fronts_.size(); ++c) {
    const Front& front = fronts_[c];
    const double seconds = plain ? front.fixed + front.row * work.rows + front.step * work.steps +
                                       front.log_step * work.log_steps
                                 : front.costs->Seconds(work, WorkerId{});
    consider(front.slot, front.free, seconds, front.aversion);
  }
  for (size_t w = 0; placed && w < workers_.size(); ++w) {
    const WorkerId id = workers_[w].worker;
    if (id != work.state_at && id != work.data_at) continue;
    for (size_t slot = first_slot_[w]; slot < first_slot_[w] + workers_[w].slots; ++slot)
      consider(slot, slots_[slot].free, workers_[w].costs.Seconds(work, id),
               AversionOf(workers_[w].costs));
  }
  const Turn turn{.worker = slots_[best].worker,
                  .slot = slots_[best].number,
                  .start = slots_[best].free,
                  .finish = finish};
  Move(best, finish);
  return turn;
}

}  // namespace macaw::scheduler
