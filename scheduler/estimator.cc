#include "scheduler/estimator.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace macaw::scheduler {
namespace {

constexpr size_t kMostDevices = 1024;

RobustRegression::Vector Features(const Work& work) {
  return {1, work.rows, work.steps, work.log_steps};
}

// Within a round, coefficients are updated after 1, 2, 4, 8, … times.
bool Due(const RobustRegression& terms) { return std::has_single_bit(terms.seen()); }

}  // namespace

void Estimator::AddWorker(WorkerId worker, const std::string& device) {
  Worker& added = workers_[worker];
  added = {.device = device};
  devices_.try_emplace(device);
  Solve(added);
}

void Estimator::RemoveWorker(WorkerId worker) {
  workers_.erase(worker);
  if (devices_.size() <= kMostDevices) return;
  // What a kind of device has taught is kept for workers to come, unless there are very many kinds.
  std::erase_if(devices_, [this](const auto& device) {
    return std::ranges::none_of(
        workers_, [&](const auto& known) { return known.second.device == device.first; });
  });
}

void Estimator::Observe(WorkerId worker, const CohortEntry& entry, const Timing& timing) {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  Worker& own = it->second;
  Terms& device = devices_[own.device];
  own.observed = true;
  const RobustRegression::Vector x = Features(WorkOf(entry));
  const auto learn = [&](RobustRegression Terms::*term, const RobustRegression::Vector& features,
                         double seconds) {
    RobustRegression& mine = own.terms.*term;
    RobustRegression& shared = device.*term;
    // The device's prior learns the shape of the costs, so each worker's times are scaled to the
    // device's prediction.
    const double here = mine.solved() ? mine.Predict(features) : 0;
    const double there = shared.solved() ? shared.Predict(features) : 0;
    mine.Observe(features, seconds);
    shared.Observe(features, here > 0 && there > 0 ? seconds * there / here : seconds);
    if (Due(shared)) shared.Solve();
    if (Due(mine)) mine.Solve(&shared, options_.prior_weight);
  };
  if (timing.state_seconds > 0) learn(&Terms::state, {1, 0, 0, 0}, timing.state_seconds);
  learn(&Terms::load, {1, x[1], 0, 0}, timing.load_seconds);
  learn(&Terms::train, x, timing.train_seconds);
}

void Estimator::Solve(Worker& worker) {
  const Terms& device = devices_[worker.device];
  for (RobustRegression Terms::*term : {&Terms::state, &Terms::load, &Terms::train})
    (worker.terms.*term).Solve(&(device.*term), options_.prior_weight);
}

void Estimator::EndRound() {
  for (auto& [name, device] : devices_) {
    for (RobustRegression Terms::*term : {&Terms::state, &Terms::load, &Terms::train}) {
      (device.*term).Solve();
      (device.*term).Forget(options_.keep);
    }
  }
  for (auto& [id, worker] : workers_) {
    // A worker that waits for its first client follows its device.
    const bool waits = worker.terms.train.seen() == 0;
    if (!worker.observed && !waits) continue;
    Solve(worker);
    if (!std::exchange(worker.observed, false)) continue;
    for (RobustRegression Terms::*term : {&Terms::state, &Terms::load, &Terms::train})
      (worker.terms.*term).Forget(options_.keep);
  }
}

Costs Estimator::CostsOf(WorkerId worker) const {
  const auto it = workers_.find(worker);
  if (it == workers_.end() || !it->second.terms.train.solved()) return {};
  const Terms& terms = it->second.terms;
  const RobustRegression::Vector& load = terms.load.coefficients();
  const RobustRegression::Vector& train = terms.train.coefficients();
  const bool known = terms.train.seen() > 0;
  return {.fixed = load[0] + train[0],
          .state = terms.state.coefficients()[0],
          .row_load = load[1],
          .row = train[1],
          .step = train[2],
          .log_step = train[3],
          .uncertainty = terms.train.Uncertainty() + (known ? 0 : 1),
          .known = known,
          .of_others = !known};
}

Prediction Estimator::Predict(WorkerId worker, const CohortEntry& entry) const {
  const Costs costs = CostsOf(worker);
  const double seconds = costs.Seconds(WorkOf(entry));
  return {.seconds = seconds, .deviation = seconds * costs.uncertainty};
}

}  // namespace macaw::scheduler
