#include "cli/simulate/planned_work.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "core/status.h"
#include "plan/local_steps.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"

namespace macaw::cli {

absl::StatusOr<TurnPlan> TurnPlan::Make(const RunPlan& run, std::vector<uint32_t> rows) {
  TurnPlan plan(run, std::move(rows));
  MACAW_ASSIGN_OR_RETURN(plan.sampler_, scheduler::MakeSampler(plan.run_.cohort, plan.rows_));
  return plan;
}

std::vector<PlannedTurn> TurnPlan::Of(Round round) const {
  const bool drop = run_.cohort.straggler_policy == "drop";
  const LocalConfig local = training::RoundLocal(run_, round);
  std::vector<PlannedTurn> turns;
  for (const scheduler::CohortEntry& entry : sampler_->Sample(round).entries) {
    if (drop && training::IsStraggler(run_.cohort, round, entry.client)) continue;
    const LocalConfig work = training::WorkOf(run_.cohort, local, round, entry.client, entry.load);
    turns.push_back({.client = entry.client,
                     .examples = entry.load,
                     .steps = StepsOf(work, entry.load),
                     .passed = static_cast<double>(RowsPassed(work, entry.load))});
  }
  return turns;
}

PlannedWork WorkOfRun(const TurnPlan& plan, uint32_t rounds, uint64_t most_turns) {
  constexpr uint32_t kExamples = 40;
  PlannedWork work{.rounds = rounds};
  if (rounds == 0) {
    work.clients = 0;
    return work;
  }
  const uint64_t first = std::max<size_t>(plan.Of(Round(1)).size(), 1);
  const uint64_t drawn = std::clamp<uint64_t>(most_turns / first, 1, rounds);
  std::vector<uint8_t> seen;  // by client
  bool any = false;
  for (uint64_t i = 0; i < drawn; ++i) {
    const Round round(1 + static_cast<uint32_t>(i * rounds / drawn));
    for (const PlannedTurn& turn : plan.Of(round)) {
      work.turns += 1;
      work.steps += static_cast<double>(turn.steps);
      work.least_steps = any ? std::min(work.least_steps, turn.steps) : turn.steps;
      work.most_steps = std::max(work.most_steps, turn.steps);
      any = true;
      if (drawn < rounds) continue;
      if (turn.client.value >= seen.size()) seen.resize(turn.client.value + 1);
      seen[turn.client.value] = 1;
    }
    if (i * kExamples / drawn != (i + 1) * kExamples / drawn) work.examples.push_back(round);
  }
  work.drawn = static_cast<uint32_t>(drawn);
  const double scale = static_cast<double>(rounds) / static_cast<double>(drawn);
  work.turns *= scale;
  work.steps *= scale;
  if (work.exact()) work.clients = static_cast<uint64_t>(std::ranges::count(seen, 1));
  return work;
}

TurnCost FitTurns(std::span<const TimedTurn> turns) {
  if (turns.empty()) return {};
  const auto count = static_cast<double>(turns.size());
  double passed = 0, seconds = 0;
  for (const TimedTurn& turn : turns) {
    passed += turn.passed / count;
    seconds += turn.seconds / count;
  }
  if (passed <= 0) return {.fixed = seconds};
  double square = 0, product = 0;
  for (const TimedTurn& turn : turns) {
    square += (turn.passed - passed) * (turn.passed - passed);
    product += (turn.passed - passed) * (turn.seconds - seconds);
  }
  const double most = seconds / passed;  // a larger slope would make the fixed part negative
  const double row = square > 0 ? std::clamp(product / square, 0.0, most) : most;
  return {.fixed = seconds - row * passed, .row = row};
}

double LongestFirst(std::vector<double> seconds, uint32_t slots) {
  std::ranges::sort(seconds, std::greater<>());
  std::priority_queue<double, std::vector<double>, std::greater<>> ends;  // of the slots
  for (uint32_t slot = 0; slot < std::max(slots, 1U); ++slot) ends.push(0);
  double last = 0;
  for (const double turn : seconds) {
    const double end = ends.top() + turn;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
  }
  return last;
}

}  // namespace macaw::cli
