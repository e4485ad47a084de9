#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/ids.h"
#include "scheduler/cost.h"
#include "scheduler/robust_regression.h"

namespace macaw::scheduler {

// The times that a client took on a worker's slot, as reported with its contribution.
struct Timing {
  double state_seconds = 0;  // for reading its state; 0: it has none
  double load_seconds = 0;   // for loading its rows
  double train_seconds = 0;  // everything after that, up to its contribution
};

struct Prediction {
  double seconds = 0;
  double deviation = 0;  // standard deviation of one client's time
};

// Learns the cost of a client on each worker from reported times, online, with about 2 kB per
// worker: one regression each for reading a state, loading rows, and training. The regressions are
// robust to outliers, non-negative, and forget over rounds (robust_regression.h). Workers of the
// same device kind share a prior. A worker scales it by a factor of its own, until its own times
// outweigh it. Times affect placement only, never a result. Not thread-safe.
class Estimator {
 public:
  struct Options {
    // How much of what was learned remains after each round in which a worker took part.
    double keep = 0.85;
    double prior_weight = 4;  // in clients
  };

  Estimator() = default;
  explicit Estimator(const Options& options) : options_(options) {}

  // `device`: workers with equal names share a prior.
  void AddWorker(WorkerId worker, const std::string& device);
  void RemoveWorker(WorkerId worker);

  // O(1). Unknown workers are ignored.
  void Observe(WorkerId worker, const CohortEntry& entry, const Timing& timing);
  // Updates the coefficients, and forgets a fraction of what was learned, for every device and for
  // the workers that were observed in this round. Those that wait for their first client get their
  // device's coefficients.
  void EndRound();

  // For a worker that has not reported times: its device's costs, as of the last round's end. If
  // its device has none either: one a row, and not InSeconds.
  Costs CostsOf(WorkerId worker) const;
  Prediction Predict(WorkerId worker, const CohortEntry& entry) const;

 private:
  struct Terms {
    RobustRegression state, load, train;
  };
  struct Worker {
    Terms terms;
    std::string device;
    bool observed = false;  // in this round
  };
  void Solve(Worker& worker);

  Options options_;
  std::map<std::string, Terms> devices_;
  std::map<WorkerId, Worker> workers_;
};

}  // namespace macaw::scheduler
