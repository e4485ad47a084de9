#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"
#include "plan/local.h"
#include "plan/local_steps.h"
#include "plan/run_plan.h"
#include "scheduler/cohort.h"
#include "server/engine/arrivals.h"
#include "virtual_time/clock.h"
#include "virtual_time/devices.h"
#include "virtual_time/presence.h"

// Who trains in a round, as pure functions of the run, its clients' rows and the clock: the rules
// of a server without its engine, which estimates and pictures ask, too.
namespace macaw::server {

// Draws the clients that a round of this run asks, or those that begin together where rounds do not
// wait for each other. `rows`: of each client, 0: it cannot be drawn. Both must outlive the result.
// `presence`: of a run with [devices], or null. `feedback`: of one whose sampling learns from
// rounds, else null. They must outlive the result. Errors name the key of [cohort] to change.
absl::StatusOr<std::unique_ptr<scheduler::CohortSampler>> SamplerOf(
    const RunPlan& run, std::span<const uint32_t> rows, const virtual_time::Presence* presence,
    const scheduler::Feedback* feedback = nullptr);

// What a client moves in its turn of the first round, before any was measured: the model down, with
// its frozen tensors, and those that it trains up.
virtual_time::Traffic FirstTraffic(const RunPlan& run, const ParameterLayout& model);

// The clients that a round asks, without those that the run's straggler policy drops.
std::vector<scheduler::CohortEntry> AskedIn(const RunPlan& run,
                                            const scheduler::CohortSampler& sampler,
                                            const scheduler::Moment& moment);

// What clients of a run do: each its part of a round's [local]. One thread.
class ClientWork {
 public:
  // `run` and the rows that pass through the model meanwhile must outlive it.
  ClientWork(const RunPlan& run, const RowsOfTurn& rule) : run_(run), rule_(rule) {}
  // Of a client that has this round's work (WorkRound).
  LocalConfig In(Round round, const scheduler::CohortEntry& entry);
  // Its steps, and the rows that pass through the model.
  uint64_t Steps(Round round, const scheduler::CohortEntry& entry);
  double Passed(Round round, const scheduler::CohortEntry& entry);

 private:
  const RunPlan& run_;
  const RowsOfTurn& rule_;
  std::optional<Round> round_;  // the last one that was asked for, and its [local]
  LocalConfig local_;
};

// A round in virtual time.
struct TimedRound {
  std::vector<Arrival> counted;  // by client; in a round that waits, from the model before it
  std::vector<BegunTurn> begun;  // the turns that began in it, whether they count or not
  virtual_time::RoundTime time;
};

// Round `round` of a run with [devices], which begins at `clock`. Over-selection keeps the first
// cohort.size, and [round] closes as it does on a fleet. `rule`: what a turn of the run's rule
// passes through the model. `sampler`: of SamplerOf.
//   buffered, mixed  the next arrivals (arrivals.h)
//   overlapped       the clients of round r begin when those of round r − 1 have done their work,
//                    while those send. The newest model is then that of round r − 2, which they
//                    have fetched before, so far as it was there. The deadline counts from then.
TimedRound TimeRound(const RunPlan& run, const virtual_time::Devices& devices,
                     const RowsOfTurn& rule, const scheduler::CohortSampler& sampler, Round round,
                     const virtual_time::ClockState& clock);

}  // namespace macaw::server
