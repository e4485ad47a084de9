#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/plan.h"
#include "testing/virtual_round.h"

namespace macaw::bench {

// A scheduler of another system, or ours, with whatever it learns from reported times. Each is
// written anew from what its paper and its code say; what differs is said in contestants.cc.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual scheduler::Plan Assign(const scheduler::Cohort& cohort,
                                 const std::vector<scheduler::WorkerInfo>& workers) = 0;
  virtual void Learn(const std::vector<scheduler::VirtualTurn>& turns) = 0;
};

struct Entrant {
  std::string name;
  std::string what;
  bool ours = false;
  std::unique_ptr<Contestant> (*make)(const std::vector<scheduler::WorkerInfo>& workers) = nullptr;
};
// In the order of the table; the last is ours.
std::vector<Entrant> Entrants();

// Parrot's planner as it is written: it copies the whole assignment for each slot and calls itself
// for each client. Seconds it takes; nothing where it would go deeper than Python's limit that it
// sets (10000). `costs[s](rows)` are given as intercept and slope.
struct ParrotTimed {
  bool ends = true;
  double seconds = 0;
};
ParrotTimed TimeParrotPlan(const std::vector<double>& rows,
                           const std::vector<std::pair<double, double>>& costs);

}  // namespace macaw::bench
