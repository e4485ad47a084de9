#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/simulate/planned_work.h"
#include "core/clock.h"
#include "core/vector.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// How a run is tried: a few of its rounds, with fewer clients.
struct TrialOptions {
  uint64_t cohort = 1;  // clients of a round
  uint32_t steps = 0;   // local steps of each; 0: those of the run
  bool stateful = false;
  ClientDevices devices = {};  // of a run with [devices]
  LayoutPtr layout = nullptr;  // of the run's model; Try needs it
  Duration enough = {};  // no round begins after this; of the first ones, none half way to `limit`
  Duration limit = {};   // then the trial is killed
};

// What a trial's round was, and how long it took.
struct TriedRound {
  Round round;
  uint64_t clients = 0;  // that counted
  uint64_t drawn = 0;
  double steps = 0, bytes_up = 0, bytes_down = 0;  // columns of metrics.jsonl
  double seconds = 0;                              // from its opening to its end
  double overhead = 0;  // the part of it in which even the busiest slot did nothing
  // From the round's end to its row, when the model has been evaluated if `evaluated`.
  double lag = 0;
  bool evaluated = false;
};

struct Trial {
  std::vector<TriedRound> rounds;
  std::vector<TimedTurn> turns;  // by the work that the plan gives a client
  double start = 0;              // seconds until the first round opened
  double planned_steps = 0;      // of the rounds' clients, by the plan
  // The peaks of the processes; unset: the trial was killed.
  std::optional<uint64_t> server_memory, worker_memory;  // bytes; of all workers together

  uint64_t clients() const;
  // That counted, over the later half of the rounds: a network's first updates have more zeros.
  double PerClient(double TriedRound::*column) const;
  // Mean seconds of what a round takes beside its turns, and of an evaluation.
  double Overhead() const;
  std::optional<double> Evaluation() const;
};

// The configuration of a trial: the run's, with another number of clients and steps, every second
// round evaluated, and none of what reaches beyond the trial's folder (trackers, the status page, a
// store of states elsewhere).
Config TrialConfig(const Config& config, const TrialOptions& options);

// Runs some rounds as `macaw simulate` does, in a folder of its own that is removed afterwards.
// `rows` as for TurnPlan; `script_values`: the scripted module's own tensors, or empty. No rounds
// in the result: not even one was done within the limit. kCancelled: the user has interrupted it.
absl::StatusOr<Trial> Try(const Config& config, const sdk::Catalogue& catalogue,
                          const TrialOptions& options, const std::vector<uint32_t>& rows,
                          const std::string& script_values);

}  // namespace macaw::cli
