#pragma once

#include <cstdint>

#include "core/ids.h"
#include "plan/local.h"
#include "plan/run_plan.h"

namespace macaw::training {

// The local work of a round: [local] with the round's learning rate η, which is local.lr times the
// schedule's factor, and with the round's steps. Server, workers and programs take both from here.
// A straggler does a part of it (straggler.h).
LocalConfig RoundLocal(const RunPlan& run, Round round);
// The same, of a schedule that has rounds of its own (LocalSchedule).
LocalConfig RoundLocal(const LocalConfig& local, Round round);

// The steps of a round in which the rate is `rate`. With local.qsr = α they follow the quadratic
// synchronisation rule (Gu, Lyu, Arora, Huang 2023, "A Quadratic Synchronization Rule for
// Distributed Deep Learning"):
//
//   H = max(local.steps, ⌊(α/η)²⌋), at most kMostQuadraticSteps
//
// but local.steps in warm-up, where η is small before it is large (as the authors' code does), and
// in rounds with a rate of 0, which train nothing. The authors' runs end after a number of steps;
// here a run has its number of rounds, whatever H is. A square that is a billionth short of a whole
// number counts as that number: 0.3/0.1 is 3.
uint32_t QuadraticSteps(const LocalConfig& local, double rate, Round round);
inline constexpr uint32_t kMostQuadraticSteps = 1'000'000;

// The local work of the round with the most steps, of those of the run that train.
LocalConfig MostLocal(const RunPlan& run);

}  // namespace macaw::training
