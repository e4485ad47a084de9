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
#include "virtual_time/clock.h"

namespace macaw::server {

// The state of a run between two rounds. It is one safetensors file, which is written under another
// name, fsynced and renamed. The layout is in server/README.md.
struct Checkpoint {
  Round round{};                                   // completed
  algorithms::ServerState state;                   // the model is among its vectors
  std::map<std::string, std::string> fingerprint;  // Fingerprint(plan)
  Digest data_digest;                              // of the workers' data
  std::vector<NumericProfile> profiles;            // of all workers so far, each once
  std::string owed_row;        // the round's metrics row, if its evaluation was still running
  uint64_t metrics_bytes = 0;  // size of metrics.jsonl without the owed row
  uint64_t clients_bytes = 0;  // size of clients.jsonl
  // The round's line of contributions.jsonl, likewise owed; and the size of that file.
  std::string owed_contributions;
  uint64_t contributions_bytes = 0;
  uint64_t log_bytes = 0;  // of rounds.log, synced; 0: a version that did not note it
  double seconds = 0;      // spent on the run so far
  virtual_time::ClockState clock;
  Digest run_id;  // the same in every session of a run
  // Of the blob of the frozen tensors, which are in base.safetensors and not here; zero: none are
  // frozen, or release 0.1.0 wrote it, whose checkpoints have them.
  Digest base = {};
  VersionIndex versions;  // of the clients' states after the round
  // States were lost since, and all clients begin anew after the next round (log::StatesLost::all).
  bool begins_anew = false;
  // What rounds told of their clients (scheduler/feedback.h); empty: the sampling does not learn.
  std::string feedback = {};
};

// Writes checkpoints/round-NNNNNN.safetensors in the run folder and removes all but the newest two.
// Returns the round of the oldest checkpoint that is left.
absl::StatusOr<Round> WriteCheckpoint(const std::string& run_dir, const Checkpoint& checkpoint);

// The client state versions in one checkpoint. ReadKeptVersions returns one for each checkpoint of
// the run, the newest last. It needs no layout.
struct KeptVersions {
  std::string path;
  Round round{};
  Digest run_id;
  VersionIndex versions;
};
absl::StatusOr<std::vector<KeptVersions>> ReadKeptVersions(const std::string& run_dir);

bool HasCheckpoint(const std::string& run_dir);
// Of which round the newest one is, by its name; none: there is no checkpoint.
std::optional<Round> NewestCheckpoint(const std::string& run_dir);
// A run has begun in this folder; it may have been killed before its first checkpoint.
bool HasBegun(const std::string& run_dir);

// Reads the newest checkpoint. It is an error if there is none, if it is damaged (a digest over
// everything is checked), or if it belongs to another run (the error names the first key that
// differs, with both values). `layouts`: the layouts that its vectors may have.
absl::StatusOr<Checkpoint> ReadNewestCheckpoint(
    const std::string& run_dir, const std::map<std::string, std::string>& fingerprint,
    const std::vector<LayoutPtr>& layouts);

}  // namespace macaw::server
