#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"
#include "cli/config/devices.h"
#include "core/vector.h"
#include "plan/local_steps.h"
#include "plan/run_plan.h"
#include "scheduler/cohort.h"
#include "server/engine/arrivals.h"
#include "server/engine/timed_round.h"
#include "virtual_time/clock.h"

namespace macaw::cli {

// What one client does in one round, by the plan.
struct PlannedTurn {
  ClientId client;
  uint64_t examples = 0;  // training rows
  uint64_t steps = 0;
  double passed = 0;  // rows that go through the model forth and back, each as often as it does
};

// What the rule of `run` passes through a model of this layout in a client's turn.
absl::StatusOr<RowsOfTurn> PassesOf(const RunPlan& run, const algorithms::Registry& registry,
                                    LayoutPtr layout);

struct PlannedRound {
  std::vector<PlannedTurn> turns;  // of the clients that count
  // Of a run with [devices]: when the round ends, and the turns that begin in it.
  std::optional<virtual_time::RoundTime> time = {};
  std::vector<server::BegunTurn> begun = {};
};

// Who trains in which round and how much, by the run's own draws: the server's cohorts without a
// server. Stragglers, over-selection and, with [devices], [round] are in it; that clients fail or
// are away is not (round.present_within). A sampling that learns from rounds needs their losses:
// here its cohorts are drawn uniformly. Immutable after Make.
class TurnPlan {
 public:
  // `rows`: the training rows of each client, 0 for those that cannot be drawn (DrawableRows).
  // `devices`: of a run with [devices] (OpenClientDevices). `first`: server::FirstTraffic.
  // `passes`: PassesOf.
  static absl::StatusOr<TurnPlan> Make(const RunPlan& run, std::vector<uint32_t> rows,
                                       ClientDevices devices = {},
                                       const virtual_time::Traffic& first = {},
                                       RowsOfTurn passes = {});
  // A round that begins at this moment of the virtual clock. Without [devices] it has no clock.
  PlannedRound At(Round round, const virtual_time::ClockState& clock) const;
  // The turns of a round; of a run with [devices] that of round 1 only.
  std::vector<PlannedTurn> Of(Round round) const { return At(round, first_).turns; }

  bool timed() const { return devices_.devices != nullptr; }
  bool asynchronous() const { return run_.asynchronous.on(); }
  // The clock before round 1.
  const virtual_time::ClockState& first() const { return first_; }

 private:
  TurnPlan(const RunPlan& run, std::vector<uint32_t> rows, ClientDevices devices, RowsOfTurn passes)
      : run_(run),
        rows_(std::move(rows)),
        devices_(std::move(devices)),
        passes_(std::move(passes)) {}
  // Of a client with this round's work.
  PlannedTurn TurnOf(const scheduler::CohortEntry& entry, Round work,
                     server::ClientWork& all) const;

  RunPlan run_;
  std::vector<uint32_t> rows_;  // the sampler reads them
  ClientDevices devices_;
  RowsOfTurn passes_;
  virtual_time::ClockState first_;
  std::unique_ptr<scheduler::CohortSampler> sampler_;
};

// All turns of a run together. Where a run has more than some million turns, `drawn` rounds that
// are spread over the run stand for all, and the sums are scaled. Where rounds do not wait for each
// other, they are the first ones.
struct PlannedWork {
  uint32_t rounds = 0, drawn = 0;
  double turns = 0, steps = 0;
  uint64_t least_steps = 0, most_steps = 0;  // of a client in a round
  std::optional<uint64_t> clients;           // that train at least once; unset: not all are drawn
  struct Example {
    Round round;
    virtual_time::ClockState clock;  // when it begins
  };
  std::vector<Example> examples;          // some of the rounds that were drawn
  std::optional<double> virtual_seconds;  // of all rounds, of a run with [devices]
  bool exact() const { return drawn == rounds; }
};
struct WorkLimits {
  uint64_t turns = 5'000'000, timed_turns = 1'000'000;  // are drawn; of a run with [devices]
};
// Of `rounds` rounds. `traffic`: what a turn moves after round 1. Without it every turn moves what
// one of round 1 does.
PlannedWork WorkOfRun(const TurnPlan& plan, uint32_t rounds,
                      const std::optional<virtual_time::Traffic>& traffic = std::nullopt,
                      const WorkLimits& limits = {});

// The time of a client's turn on a slot: fixed + passed · row.
struct TurnCost {
  double fixed = 0, row = 0;  // seconds
  double Of(double passed) const { return fixed + passed * row; }
};
struct TimedTurn {
  double passed = 0, seconds = 0;
};
// Least squares with both terms at least 0; its mean is that of the turns. Turns of one size say
// nothing of the fixed part: then a turn is in proportion to its rows.
TurnCost FitTurns(std::span<const TimedTurn> turns);

// The time until all turns are done, if each slot takes the longest that is left.
double LongestFirst(std::vector<double> seconds, uint32_t slots);

}  // namespace macaw::cli
