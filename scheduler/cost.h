#pragma once

#include <cmath>

#include "core/ids.h"
#include "scheduler/cohort.h"

namespace macaw::scheduler {

// The inputs of the cost model for one client.
struct Work {
  double rows = 0;
  double steps = 0;
  double log_steps = 0;  // ln(1 + steps)
  bool state = false;    // the client has a state to read
  WorkerId state_at{}, data_at{};
};

inline Work WorkOf(const CohortEntry& entry) {
  const auto steps = static_cast<double>(entry.steps);
  return {.rows = static_cast<double>(entry.load),
          .steps = steps,
          .log_steps = std::log1p(steps),
          .state = entry.has_state,
          .state_at = entry.state_at,
          .data_at = entry.data_at};
}

// The cost of one client on a slot of one worker: a sum of non-negative terms. In seconds, once the
// estimator has observed some times. Before that `row` is 1, and costs only rank clients.
struct Costs {
  double fixed = 0;       // per client
  double state = 0;       // for reading its state
  double state_move = 0;  // on top, when the state lies with another worker (affinity)
  double row_load = 0;    // for loading a row
  double row_move = 0;    // on top, when the rows lie with another worker (locality)
  double row = 1;  // for training; by rows, steps and ln(1 + steps) (Sani et al. 2024, Pollen)
  double step = 0;
  double log_step = 0;
  double uncertainty = 1;  // standard deviation of a client's time, relative to its prediction
  bool known = false;      // this worker itself has reported times

  double Seconds(const Work& work, WorkerId self) const {
    double seconds = Anywhere(work);
    if (work.state) {
      seconds += state;
      if (work.state_at != WorkerId{} && work.state_at != self) seconds += state_move;
    }
    if (work.data_at != WorkerId{} && work.data_at != self) seconds += row_move * work.rows;
    return seconds;
  }
  // Without the terms that depend on where things lie.
  double Anywhere(const Work& work) const {
    return fixed + (row_load + row) * work.rows + step * work.steps + log_step * work.log_steps;
  }
  // The costs of the same device if it were `factor` times as slow.
  Costs Slower(double factor) const {
    Costs slower = *this;
    for (double* term : {&slower.fixed, &slower.state, &slower.state_move, &slower.row_load,
                         &slower.row_move, &slower.row, &slower.step, &slower.log_step})
      *term *= factor;
    return slower;
  }
};

}  // namespace macaw::scheduler
