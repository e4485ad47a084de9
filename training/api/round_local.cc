#include "training/api/round_local.h"

#include <algorithm>
#include <cmath>

#include "training/api/schedule.h"

namespace macaw::training {

uint32_t QuadraticSteps(const LocalConfig& local, double rate, Round round) {
  if (local.qsr <= 0 || local.steps == 0 || rate <= 0 ||
      round.value <= local.lr_schedule.warmup_rounds)
    return local.steps;
  constexpr double kRounding = 1e-9;
  const double ratio = local.qsr / rate;
  const double steps = std::floor(ratio * ratio * (1 + kRounding));
  if (!(steps < kMostQuadraticSteps)) return std::max(local.steps, kMostQuadraticSteps);
  return std::max(local.steps, static_cast<uint32_t>(steps));
}

LocalConfig RoundLocal(const LocalConfig& local, Round round) {
  LocalConfig work = local;
  work.lr *= ScheduleFactor(local.lr_schedule, round.value);
  work.steps = QuadraticSteps(local, work.lr, round);
  return work;
}

LocalConfig RoundLocal(const RunPlan& run, Round round) {
  LocalConfig local = run.local;
  local.lr_schedule = LocalSchedule(run);
  return RoundLocal(local, round);
}

LocalConfig MostLocal(const RunPlan& run) {
  const uint32_t rounds = std::max(run.rounds, 1U);
  const Schedule schedule = LocalSchedule(run);
  // Behind the warm-up the rate only falls or only grows, and so do the steps.
  const uint32_t idle = FirstIdleRound(schedule, rounds).value_or(rounds + 1);
  const uint32_t first = std::min(schedule.warmup_rounds, rounds - 1) + 1;
  const LocalConfig begin = RoundLocal(run, Round(first));
  const LocalConfig end = RoundLocal(run, Round(std::max(idle - 1, 1U)));
  return end.steps > begin.steps ? end : begin;
}

}  // namespace macaw::training
