#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/ids.h"
#include "scheduler/cost.h"
#include "scheduler/robust_regression.h"

namespace macaw::scheduler {

// What a client took on a worker's slot, as reported with its contribution.
struct Timing {
  double state_seconds = 0;  // reading its state; 0: it has none
  double load_seconds = 0;   // its rows
  double train_seconds = 0;  // everything after, to its contribution
};

struct Prediction {
  double seconds = 0;
  double deviation = 0;  // standard, of one client's time
};

// Learns what a client costs on each worker from reported times, online and in constant memory a
// worker (about 2 kB): three regressions, of reading a state, loading rows and training, each
// robust to outliers, non-negative and forgetful over rounds (robust_regression.h). Workers of one
// device kind share a prior, which a worker scales by a factor of its own until its own times
// outweigh it. Times that are never reported never matter: placement only, no result. Not
// thread-safe.
class Estimator {
 public:
  struct Options {
    double keep = 0.85;       // of what was learned, after each round that a worker took part in
    double prior_weight = 4;  // in clients
  };

  Estimator() = default;
  explicit Estimator(const Options& options) : options_(options) {}

  // `device`: workers with equal names share a prior.
  void AddWorker(WorkerId worker, const std::string& device);
  void RemoveWorker(WorkerId worker);

  // O(1). Unknown workers are ignored.
  void Observe(WorkerId worker, const CohortEntry& entry, const Timing& timing);
  // Brings the coefficients up to date and forgets a little, of every device and of the workers
  // that were observed.
  void EndRound();

  // Of a worker that has not reported: its device's; of one whose device has not: rows as seconds.
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
