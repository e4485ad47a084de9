#include "server/engine/timed_round.h"

#include <algorithm>
#include <utility>

#include "plan/local_steps.h"
#include "server/engine/round_policy.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"
#include "virtual_time/closing.h"

namespace macaw::server {
namespace {

// `asked`: of the turns that a round begins.
virtual_time::ClosingRules ClosingRulesOf(const RunPlan& run, size_t asked) {
  const DevicesConfig& config = run.devices;
  virtual_time::ClosingRules rules{.deadline = config.deadline,
                                   .needed = NeededOf(config.quorum, asked),
                                   .drops_below = config.drops_below};
  if (run.cohort.over_selection > 1) rules.keep = run.cohort.size;
  if (config.enough > 0)
    rules.keep = rules.keep > 0 ? std::min(rules.keep, config.enough) : config.enough;
  return rules;
}

TimedRound InTime(const RunPlan& run, const virtual_time::Devices& devices,
                  const scheduler::CohortSampler& sampler, Round round,
                  const virtual_time::ClockState& clock) {
  const std::vector<scheduler::CohortEntry> asked = AskedIn(run, sampler, {round, clock.now});
  const Round base(round.value - 1);
  ClientWork work(run);
  TimedRound timed;
  std::vector<double> seconds;
  for (const scheduler::CohortEntry& entry : asked) {
    const auto passed = static_cast<double>(RowsPassed(work.From(base, entry), entry.load));
    const virtual_time::TurnTime turn = devices.TurnOf(round, entry.client, passed, clock.traffic);
    timed.begun.push_back({.client = entry.client, .base = base, .began = clock.now, .time = turn});
    seconds.push_back(turn.whole());
  }
  const virtual_time::Closing closing =
      virtual_time::CloseRound(seconds, ClosingRulesOf(run, asked.size()));
  timed.time = {.end = clock,
                .seconds = closing.seconds,
                .late = closing.late,
                .not_needed = closing.not_needed};
  // Where nobody was there to be drawn, time must go on until somebody is.
  if (asked.empty()) timed.time.seconds = kNobodyPause;
  timed.time.end.now += timed.time.seconds;
  for (const uint32_t place : closing.kept)
    timed.counted.push_back({.entry = asked[place], .base = base});
  return timed;
}

TimedRound NextArrivals(const RunPlan& run, const virtual_time::Devices& devices,
                        const scheduler::CohortSampler& sampler, Round round,
                        const virtual_time::ClockState& clock) {
  ClientWork work(run);
  const auto passed = [&work](const scheduler::CohortEntry& entry, Round base) {
    return static_cast<double>(RowsPassed(work.From(base, entry), entry.load));
  };
  Arrived arrived = ArrivalsOf(run, devices, sampler, passed, round, clock);
  return {.counted = std::move(arrived.arrivals),
          .begun = std::move(arrived.begun),
          .time = {.end = std::move(arrived.clock),
                   .seconds = arrived.seconds,
                   .late = arrived.too_stale,
                   .asynchronous = true}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<scheduler::CohortSampler>> SamplerOf(
    const RunPlan& run, std::span<const uint32_t> rows, const virtual_time::Presence* presence) {
  CohortConfig cohort = run.cohort;
  if (run.asynchronous.on()) cohort.size = run.asynchronous.refill;
  return run.devices.on() ? scheduler::MakeCandidates(cohort, rows, presence)
                          : scheduler::MakeSampler(cohort, rows);
}

std::vector<scheduler::CohortEntry> AskedIn(const RunPlan& run,
                                            const scheduler::CohortSampler& sampler,
                                            const scheduler::Moment& moment) {
  std::vector<scheduler::CohortEntry> asked = sampler.Sample(moment).entries;
  if (run.cohort.straggler_policy == "drop") {
    std::erase_if(asked, [&](const scheduler::CohortEntry& entry) {
      return training::IsStraggler(run.cohort, moment.round, entry.client);
    });
  }
  return asked;
}

LocalConfig ClientWork::From(Round base, const scheduler::CohortEntry& entry) {
  const Round work(base.value + 1);
  if (base_ != base) {
    base_ = base;
    local_ = training::RoundLocal(run_, work);
  }
  return training::WorkOf(run_.cohort, local_, work, entry.client, entry.load);
}

TimedRound TimeRound(const RunPlan& run, const virtual_time::Devices& devices,
                     const scheduler::CohortSampler& sampler, Round round,
                     const virtual_time::ClockState& clock) {
  return run.asynchronous.on() ? NextArrivals(run, devices, sampler, round, clock)
                               : InTime(run, devices, sampler, round, clock);
}

}  // namespace macaw::server
