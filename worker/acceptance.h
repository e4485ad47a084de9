#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/settings/section.h"
#include "plan/run_plan.h"

namespace macaw::worker {

// What a node's owner lets it be used for. Nothing set: any run.
struct AcceptConfig {
  std::vector<std::string> algorithms;  // names of rules
  std::vector<std::string> models;      // names of models; "layers" for those given by their layers
  uint64_t max_parameters = 0;          // of the model; 0: any number
  uint64_t max_steps = 0;               // local steps of a client's turn; 0: any number
  // When it may work (availability.h).
  std::vector<std::string> run_when;  // a program that says so with exit code 0; empty: always
  double run_when_every = 60;         // seconds between two of its answers, at least
  std::vector<std::string> hours;     // times of day, on this node's clock; empty: always
  uint64_t max_bytes_up_a_day = 0;    // that it sends; 0: any number
  uint64_t max_bytes_down_a_day = 0;  // that it receives; 0: any number

  bool limits_traffic() const { return max_bytes_up_a_day > 0 || max_bytes_down_a_day > 0; }
  bool conditional() const { return !run_when.empty() || !hours.empty() || limits_traffic(); }
};

// The keys of [accept], with full names.
settings::Section<AcceptConfig> AcceptSection();

// What a run asks of a node.
struct Demand {
  uint64_t parameters = 0;                // of the run's model
  uint64_t rows = 0;                      // of the node's largest client
  uint64_t bytes_up = 0, bytes_down = 0;  // that a client's turn moves, about
  uint64_t base_bytes = 0;                // of the frozen tensors, which the node fetches once
  bool joins = false;                     // EpochBatches::Of, of the run's model
};

// The local steps of a turn of the node's largest client, in the round that asks for the most.
uint64_t MostSteps(const RunPlan& run, const Demand& demand);

// Whether the owner accepts the run at any time. kPermissionDenied names the key that does not let
// it in, and what the run has.
absl::Status CheckAccepted(const AcceptConfig& accept, const RunPlan& run, const Demand& demand);

}  // namespace macaw::worker
