#pragma once

#include <cmath>
#include <optional>
#include <span>

#include "core/ids.h"
#include "scheduler/cohort.h"

namespace macaw::scheduler {

// The inputs of the cost model for one client.
struct Work {
  double rows = 0;
  double steps = 0;
  double log_steps = 0;  // ln(1 + steps)
  bool state = false;    // the client has a state to read
};

inline Work WorkOf(const CohortEntry& entry) {
  const auto steps = static_cast<double>(entry.steps);
  return {.rows = static_cast<double>(entry.load),
          .steps = steps,
          .log_steps = std::log1p(steps),
          .state = entry.has_state};
}

// The cost of one client on a slot of one worker: a sum of non-negative terms. In seconds, once
// times of some worker are known (InSeconds). Before that `row` is 1, and costs only rank clients.
struct Costs {
  double fixed = 0;     // per client
  double state = 0;     // for reading its state
  double row_load = 0;  // for loading a row
  double row = 1;       // for training; by rows, steps and ln(1 + steps) (Sani et al. 2024, Pollen)
  double step = 0;
  double log_step = 0;
  double uncertainty = 1;  // standard deviation of a client's time, relative to its prediction
  bool known = false;      // this worker itself has reported times
  // Of times of its device's other workers, or a guess from workers of other devices
  // (GuessedCosts).
  bool of_others = false;

  bool InSeconds() const { return known || of_others; }
  double Seconds(const Work& work) const {
    return work.state ? WithoutState(work) + state : WithoutState(work);
  }
  // Without reading the client's state.
  double WithoutState(const Work& work) const {
    return fixed + (row_load + row) * work.rows + step * work.steps + log_step * work.log_steps;
  }
  // The costs of the same device if it were `factor` times as slow.
  Costs Slower(double factor) const {
    Costs slower = *this;
    for (double* term : {&slower.fixed, &slower.state, &slower.row_load, &slower.row, &slower.step,
                         &slower.log_step})
      *term *= factor;
    return slower;
  }
};

// Of a worker about which nothing is known: the mean of those that have reported times, or of those
// with times of their devices, and very uncertain. Where nobody has any, rows still stand for
// seconds. nullopt: there are no others.
std::optional<Costs> GuessedCosts(std::span<const Costs> others);

}  // namespace macaw::scheduler
