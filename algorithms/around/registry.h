#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/description.h"

namespace macaw::algorithms {

// Refuses a rule that no round of this run can serve: it needs more clients than MostClients, or
// than `enough`, with which each round closes ([round] enough; 0: all).
absl::Status CheckNeeded(const Description& description, const Setup& setup, uint64_t enough = 0);

// Refuses a rule that cannot do with the clients that have rows. `rows`: of each client, those that
// it can train on; 0: it is never drawn.
absl::Status CheckRows(const Description& description, const Setup& setup,
                       std::span<const uint32_t> rows);

// The schema of a run, which server and workers both start from. Refuses, with the reason: a run
// that the algorithm is not made for; sampling with replacement, if each client's state or update
// must be unique; a total that the run depends on and that is not known.
absl::StatusOr<Schema> MakeSchema(const Description& description, const Setup& setup);

// Which totals the run depends on, by its rule or by its sampling: a Poisson cohort is divided by
// its planned weight, q·W.
TotalsUsed TotalsOf(const Description& description, const Setup& setup);

// The same without the refusals: the description's schema, checked and with the names for messages.
absl::StatusOr<Schema> SchemaOf(const Description& description, const Setup& setup);

// The setup of `run`. The parameters of its algorithm must be complete.
Setup SetupOf(const RunPlan& run, LayoutPtr layout);

// Filled once in main(), read-only afterwards.
class Registry {
 public:
  // Refuses a name that is taken. What is added is guarded (guard.h).
  absl::Status Add(Description description);
  // Adds the rules of this folder (BuiltinAlgorithms of algorithms/builtin.h). A refusal is a
  // programming error and aborts.
  void AddBuiltin(std::vector<Description> descriptions);
  absl::StatusOr<const Description*> Find(
      const std::string& name) const;           // an error lists the nearest names
  std::vector<const Description*> All() const;  // by name
  // The rule of a run: its algorithm, and around it norms of its updates, the discount of older
  // ones, the run's compression, its privacy, its attackers, its compression of the model and its
  // frozen tensors, of those that the run has.
  absl::StatusOr<Description> RuleOf(const RunPlan& run) const;

  // Fills in defaults and checks types, ranges and names. Errors name `algorithm.NAME.parameter`.
  absl::StatusOr<AlgorithmConfig> Complete(AlgorithmConfig config) const;

 private:
  std::map<std::string, Description> descriptions_;
};

}  // namespace macaw::algorithms
