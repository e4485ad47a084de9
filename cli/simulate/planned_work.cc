#include "cli/simulate/planned_work.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/status.h"
#include "plan/local_steps.h"

namespace macaw::cli {

namespace {

// Of the rounds after those that were drawn.
double UndrawnSeconds(const std::vector<double>& seconds, uint32_t rounds) {
  double later = 0;  // the first rounds, in which everybody begins, are like no others
  const size_t half = seconds.size() / 2;
  for (size_t i = half; i < seconds.size(); ++i) later += seconds[i];
  return (rounds - static_cast<double>(seconds.size())) * later /
         static_cast<double>(seconds.size() - half);
}

}  // namespace

absl::StatusOr<RowsOfTurn> PassesOf(const RunPlan& run, const algorithms::Registry& registry,
                                    LayoutPtr layout) {
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description rule, registry.RuleOf(run));
  return algorithms::RowsOfTurnOf(rule, algorithms::SetupOf(run, std::move(layout)));
}

absl::StatusOr<TurnPlan> TurnPlan::Make(const RunPlan& run, std::vector<uint32_t> rows,
                                        ClientDevices devices, const virtual_time::Traffic& first,
                                        RowsOfTurn passes) {
  TurnPlan plan(run, std::move(rows), std::move(devices), std::move(passes));
  if (LearnsFromRounds(run.cohort)) plan.run_.cohort.sampling = "uniform";
  MACAW_ASSIGN_OR_RETURN(plan.sampler_,
                         server::SamplerOf(plan.run_, plan.rows_, plan.devices_.presence.get()));
  plan.first_.traffic = first;
  return plan;
}

PlannedTurn TurnPlan::TurnOf(const scheduler::CohortEntry& entry, Round work,
                             server::ClientWork& all) const {
  return {.client = entry.client,
          .examples = entry.load,
          .steps = all.Steps(work, entry),
          .passed = all.Passed(work, entry)};
}

PlannedRound TurnPlan::At(Round round, const virtual_time::ClockState& clock) const {
  PlannedRound planned;
  server::ClientWork work(run_, passes_);
  if (timed()) {
    server::TimedRound timed =
        server::TimeRound(run_, *devices_.devices, passes_, *sampler_, round, clock);
    for (const server::Arrival& one : timed.counted) {
      const uint32_t staleness = round.value - 1 - one.base.value;
      const Round has = WorkRound(run_.asynchronous, round, staleness);
      planned.turns.push_back(TurnOf(one.entry, has, work));
    }
    planned.time = std::move(timed.time);
    planned.begun = std::move(timed.begun);
    return planned;
  }
  for (const scheduler::CohortEntry& entry : server::AskedIn(run_, *sampler_, round))
    planned.turns.push_back(TurnOf(entry, round, work));
  return planned;
}

PlannedWork WorkOfRun(const TurnPlan& plan, uint32_t rounds,
                      const std::optional<virtual_time::Traffic>& traffic,
                      const WorkLimits& limits) {
  constexpr uint32_t kExamples = 40;
  PlannedWork work{.rounds = rounds};
  if (plan.timed()) work.virtual_seconds = 0;
  if (rounds == 0) {
    work.clients = 0;
    return work;
  }
  const uint64_t most = plan.timed() ? limits.timed_turns : limits.turns;
  const uint64_t drawn =
      std::clamp<uint64_t>(most / std::max<size_t>(plan.Of(Round(1)).size(), 1), 1, rounds);
  const auto round_of = [&](uint64_t i) {
    return Round(1 + static_cast<uint32_t>(plan.asynchronous() ? i : i * rounds / drawn));
  };
  std::vector<uint8_t> seen;  // by client
  std::vector<double> seconds;
  bool any = false;
  virtual_time::ClockState clock = plan.first();
  for (uint64_t i = 0; i < drawn; ++i) {
    const Round round = round_of(i);
    PlannedRound planned = plan.At(round, clock);
    for (const PlannedTurn& turn : planned.turns) {
      work.turns += 1;
      work.steps += static_cast<double>(turn.steps);
      work.least_steps = any ? std::min(work.least_steps, turn.steps) : turn.steps;
      work.most_steps = std::max(work.most_steps, turn.steps);
      any = true;
      if (drawn < rounds) continue;
      if (turn.client.value >= seen.size()) seen.resize(turn.client.value + 1);
      seen[turn.client.value] = 1;
    }
    if (i * kExamples / drawn != (i + 1) * kExamples / drawn)
      work.examples.push_back({.round = round, .clock = clock});
    if (!planned.time.has_value()) continue;
    seconds.push_back(planned.time->seconds);
    clock = std::move(planned.time->end);
    if (traffic.has_value()) clock.traffic = *traffic;
    // Until the next one that is drawn.
    if (!plan.asynchronous() && i + 1 < drawn)
      clock.now += seconds.back() * (round_of(i + 1).value - round.value - 1);
  }
  work.drawn = static_cast<uint32_t>(drawn);
  const double scale = static_cast<double>(rounds) / static_cast<double>(drawn);
  work.turns *= scale;
  work.steps *= scale;
  if (work.exact()) work.clients = static_cast<uint64_t>(std::ranges::count(seen, 1));
  if (plan.timed()) {
    const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    work.virtual_seconds =
        plan.asynchronous() ? sum + UndrawnSeconds(seconds, rounds) : sum * scale;
  }
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
