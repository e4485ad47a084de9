#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"
#include "core/numeric_profile.h"
#include "core/vector.h"
#include "plan/run_plan.h"
#include "server/engine/version_index.h"

namespace macaw::server {

// The state of a run between two rounds. One safetensors file, written aside, fsynced and renamed;
// its layout is in server/README.md.
struct Checkpoint {
  Round round{};                                   // completed
  algorithms::ServerState state;                   // the model is among its vectors
  std::map<std::string, std::string> fingerprint;  // Fingerprint(plan)
  Digest data_digest;                              // of the workers' data
  NumericProfile profile;
  std::string owed_row;        // the round's metrics row, when its evaluation was still under way
  uint64_t metrics_bytes = 0;  // rows of the rounds before it
  uint64_t clients_bytes = 0;  // likewise, of clients.jsonl
  double seconds = 0;          // spent so far
  Digest run_id;               // the same in every session of a run
  VersionIndex versions;       // of the clients' states, after the round
};

// Writes checkpoints/round-NNNNNN.safetensors in the run folder and removes all but the newest two.
// Returns the round of the oldest that is left.
absl::StatusOr<Round> WriteCheckpoint(const std::string& run_dir, const Checkpoint& checkpoint);

// What the checkpoints of a run say of its clients' states, the newest last. Needs no layout.
struct KeptVersions {
  std::string path;
  Round round{};
  Digest run_id;
  VersionIndex versions;
};
absl::StatusOr<std::vector<KeptVersions>> ReadKeptVersions(const std::string& run_dir);

bool HasCheckpoint(const std::string& run_dir);

// The newest one. Refuses: none there, damaged (a digest over everything is checked), of another
// run (the first differing key is named with both values). `layouts` are those that its vectors may
// have.
absl::StatusOr<Checkpoint> ReadNewestCheckpoint(
    const std::string& run_dir, const std::map<std::string, std::string>& fingerprint,
    const std::vector<LayoutPtr>& layouts);

}  // namespace macaw::server
