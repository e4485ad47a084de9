#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/simulate/planned_work.h"
#include "core/vector.h"
#include "data/dataset.h"
#include "models/spec.h"
#include "scheduler/cohort.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// What a run will cost (`macaw simulate --estimate`). What the plan and the data say is computed;
// bytes and seconds are those of a trial (trial.h), so they are absent where it did not end a
// round.
struct CostEstimate {
  uint32_t rounds = 0;          // fewer than the run's where a budget of privacy ends it
  bool may_stop = false;        // a stop rule or a budget may end it sooner
  uint64_t population = 0;      // clients that can be drawn
  scheduler::RoundSize cohort;  // clients a round
  std::string learns;  // a cohort.sampling that learns: here cohorts are drawn uniformly instead
  PlannedWork work;
  double steps = 0;        // the column `steps`, of the whole run
  bool own_steps = false;  // the rule decides how many steps a client takes, and not [local]

  struct Bytes {
    double client = 0, run = 0;  // of a client in a round; of all
  };
  std::optional<Bytes> up, down;  // the columns bytes_up and bytes_down
  // Of a client's update in which no value is zero; unset: a codec decides.
  std::optional<uint64_t> most_up;
  // What each device fetches once in the run, the tensors that are frozen by name; not in `down`.
  uint64_t base = 0;

  struct Memory {
    uint64_t model = 0;   // bytes of one model
    uint64_t server = 0;  // what the server half keeps, the model included
    uint64_t sums = 0;    // a round's exact sums, the most of its phases
    // What a round with evaluation.leave_one_out adds: the clients' own sums and the models without
    // each of them, in the server; 0: there is none.
    uint64_t one_out = 0;
    // What evaluation.unlearn adds: a server half, a part and a model to evaluate for each client
    // asked for, and the sum of a round with it; 0: there is none.
    uint64_t unlearn = 0;
    std::optional<uint64_t> server_peak, worker_peak;  // of the trial
  };
  Memory memory;

  struct States {
    uint64_t client = 0;          // bytes; 0: clients keep nothing
    std::optional<uint64_t> all;  // of all clients that train at least once
  };
  States states;

  struct Seconds {
    double start = 0, round = 0;       // until the first round opens; of a round, evaluation apart
    std::optional<double> evaluation;  // of one; unset: the trial ended before one
    uint64_t evaluations = 0;
    double run = 0;
  };
  std::optional<Seconds> seconds;

  // What the trial was.
  struct Basis {
    uint64_t rounds = 0, cohort = 0, turns = 0;
    uint32_t steps = 0;  // of each client; 0: as in the run
    uint32_t slots = 0;  // of this machine
  };
  Basis basis;

  std::optional<double> virtual_seconds;  // of the run's rounds, of a run with [devices]

  std::optional<double> epsilon;  // at the end of the run
  double delta = 0;
};

// A run that has been checked (`macaw simulate --check`).
struct CheckedForEstimate {
  const Config& config;  // resolved
  const models::ModelSpec& spec;
  const data::Dataset& dataset;
  const std::string& script_values;  // a scripted module's own tensors, or empty
  bool stateful = false;
  double opened_in = 0;  // seconds that opening the data took; workers take them, too
};

// Tries the run for some seconds, in a folder that is removed; writes nothing else. Call on the
// main thread, before any other thread exists. kCancelled: the user has interrupted it.
absl::StatusOr<CostEstimate> EstimateCost(const CheckedForEstimate& run,
                                          const sdk::Catalogue& catalogue);

// Lines for people: what, and how much. `took`: seconds of the estimate itself.
std::string EstimateText(const CostEstimate& estimate, double took);
// {"event": "estimate", …}: bytes and seconds as numbers.
nlohmann::ordered_json EstimateJson(const CostEstimate& estimate, double took);

}  // namespace macaw::cli
