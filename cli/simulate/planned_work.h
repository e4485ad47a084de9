#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/run_plan.h"
#include "scheduler/cohort.h"

namespace macaw::cli {

// What one client does in one round, by the plan.
struct PlannedTurn {
  ClientId client;
  uint64_t examples = 0;  // training rows
  uint64_t steps = 0;
  double passed = 0;  // rows that go through the model, each as often as it does
};

// Who trains in which round and how much, by the run's own draws: the server's cohorts without a
// server. Stragglers and over-selection are in it; that clients fail or are away is not
// (round.present_within). Immutable after Make.
class TurnPlan {
 public:
  // `rows`: the training rows of each client, 0 for those that cannot be drawn (DrawableRows).
  static absl::StatusOr<TurnPlan> Make(const RunPlan& run, std::vector<uint32_t> rows);
  std::vector<PlannedTurn> Of(Round round) const;

 private:
  TurnPlan(const RunPlan& run, std::vector<uint32_t> rows) : run_(run), rows_(std::move(rows)) {}

  RunPlan run_;
  std::vector<uint32_t> rows_;  // the sampler reads them
  std::unique_ptr<scheduler::CohortSampler> sampler_;
};

// All turns of a run together. Where a run has more than some million turns, `drawn` rounds that
// are spread over the run stand for all, and the sums are scaled.
struct PlannedWork {
  uint32_t rounds = 0, drawn = 0;
  double turns = 0, steps = 0;
  uint64_t least_steps = 0, most_steps = 0;  // of a client in a round
  std::optional<uint64_t> clients;           // that train at least once; unset: not all are drawn
  std::vector<Round> examples;               // some of the rounds that were drawn
  bool exact() const { return drawn == rounds; }
};
// Of `rounds` rounds. `most_turns` are drawn.
PlannedWork WorkOfRun(const TurnPlan& plan, uint32_t rounds, uint64_t most_turns = 5'000'000);

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
