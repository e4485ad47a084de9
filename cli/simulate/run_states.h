#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/algorithm.h"
#include "cli/config/config.h"
#include "cli/simulate/private_redis.h"
#include "cli/simulate/run_folder.h"
#include "server/checkpoint.h"
#include "state/disk_store.h"

namespace macaw::cli {

// A run's client states, opened from its folder alone.
struct RunStates {
  std::optional<HeldFolder> held;  // the lock of the folder, if it is needed (Use)
  std::vector<algorithms::NamedLayout> items;
  std::vector<server::KeptVersions> checkpoints;  // the newest last
  std::optional<PrivateRedis> redis;              // outlives the store
  std::unique_ptr<state::ClientStateStore> store;
  const state::DiskStateStore* disk = nullptr;  // the store, if it is a disk store
  const server::KeptVersions& newest() const { return checkpoints.back(); }
};

// kChange locks the run's folder. kRead locks it only if a Redis is started on the run's data.
// kHeld: the caller has locked it.
enum class Use : uint8_t { kRead, kChange, kHeld };

// Refuses a folder without a run, without a checkpoint or without states, and says which.
absl::StatusOr<RunStates> OpenRunStates(const std::string& run, Use use = Use::kRead);

// Which versions the next server may need beside those that checkpoints name: with
// server.durability = "commit" it does the rounds after the newest checkpoint again from log and
// journal. Some of them may never have been stored.
absl::StatusOr<std::set<Attempt>> VersionsSinceCheckpoint(const std::string& run,
                                                          const RunStates& states);

// The space that the states of a finished run take, and where: "1.2 GB in runs/x/state/", or "in
// runs/x/state/ and runs/x/owners/". Empty if the states ended with the processes.
absl::StatusOr<std::string> RoomOfStates(const Config& config, const std::string& run);

// For state.keep = false: deletes the states of a finished run, wherever they are, and leaves a
// note in the run's folder. No other process may run in it.
absl::Status DropStates(const Config& config, const std::string& run);

// Returns an error if the states of the run were dropped.
absl::Status CheckStatesKept(const std::string& run);

}  // namespace macaw::cli
