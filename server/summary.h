#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/ids.h"
#include "core/numeric_profile.h"

namespace macaw::server {

// The facts in summary.json that do not come from metrics.jsonl.
struct SummaryFacts {
  std::string program;  // with its version: "macaw-server 0.1.0"
  std::string name;
  std::string algorithm;
  std::string adapters;        // kAdaptersMetadata
  std::string settings;        // a JSON object (Options::settings)
  std::string inputs;          // likewise
  uint64_t seed = 0;           // of the run
  Digest data_digest;          // of the clients and their rows
  std::string end;             // "finished", "stopped", "interrupted"
  std::string reason;          // why the run stopped early
  bool by_caller = false;      // it was stopped between two rounds, by no rule of its own
  uint32_t rounds = 0;         // that are in the model
  double seconds = 0;          // spent in all sessions of the run
  double session_seconds = 0;  // spent in this session
  uint32_t session_rounds = 0;
  Digest model_digest;
  std::optional<Digest> state_digest;  // of a stateful run
  uint64_t parameters = 0;
  uint64_t base_bytes = 0;     // of the frozen tensors, which each node fetches once
  uint64_t server_memory = 0;  // bytes, peak PSS
  std::vector<uint64_t> worker_memory;
  uint64_t sent_bytes = 0, received_bytes = 0;  // by nodes in this session, as they report
  std::string stop_metric;        // decides "best"; empty: a default (docs/guides/runs.md)
  uint32_t best_model_round = 0;  // of run.stop.patience; 0: no best model is kept
  // With run.stop.patience: whether the row of this round may be the best, and the first at an
  // accuracy (rounds_to). Null: each may.
  std::function<bool(Round)> chooses;
  // Of a private run, after its last round; takes seconds, so the writer's thread asks. Null: none.
  std::function<std::optional<double>()> epsilon;
  double delta = 0;
  std::vector<NumericProfile> profiles;       // of all workers, each once
  std::vector<std::string> bounded_channels;  // whose sums may be coarse
};

// What summary.json says of the facts and of the rows in metrics.jsonl, whose path is `metrics`.
// What is said of written models is not in it. Returns an error if a row is not JSON.
absl::StatusOr<nlohmann::ordered_json> SummaryOf(const std::string& metrics,
                                                 const SummaryFacts& facts);

}  // namespace macaw::server
