#pragma once

#include <cmath>

#include "core/ids.h"
#include "scheduler/cohort.h"

namespace macaw::scheduler {

// The work of one client as the terms of a cost see it.
struct Work {
  double rows = 0;
  double steps = 0;
  double log_steps = 0;  // ln(1 + steps)
  bool state = false;    // it has a state to read
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

// What one client costs a slot of one worker, as a sum of non-negative terms. In seconds once an
// estimator has seen some; before that `row` is 1 and costs only compare clients.
struct Costs {
  double fixed = 0;       // every client
  double state = 0;       // reading its state
  double state_move = 0;  // on top, when the state lies with another worker (affinity)
  double row_load = 0;    // loading a row
  double row_move = 0;    // on top, when the rows lie with another worker (locality)
  double row = 1;         // training, by rows, steps and ln(1 + steps) (Sani et al. 2024, Pollen)
  double step = 0;
  double log_step = 0;
  double uncertainty = 1;  // standard deviation of a client's time ÷ its prediction
  bool known = false;      // this very worker has reported times

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
  // The same device, `factor` times as slow.
  Costs Slower(double factor) const {
    Costs slower = *this;
    for (double* term : {&slower.fixed, &slower.state, &slower.state_move, &slower.row_load,
                         &slower.row_move, &slower.row, &slower.step, &slower.log_step})
      *term *= factor;
    return slower;
  }
};

}  // namespace macaw::scheduler
