#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

// A run's client states, found by its folder alone.
struct RunStates {
  std::optional<HeldFolder> held;  // against others that would run in it, where need be
  std::vector<algorithms::NamedLayout> items;
  std::vector<server::KeptVersions> checkpoints;  // the newest last
  std::optional<PrivateRedis> redis;              // outlives the store
  std::unique_ptr<state::ClientStateStore> store;
  const state::DiskStateStore* disk = nullptr;  // the store, where it is one
  const server::KeptVersions& newest() const { return checkpoints.back(); }
};

// kChange holds the run's folder, and so does kRead where a Redis of the run's own is started on
// its data. kHeld: the caller holds it.
enum class Use : uint8_t { kRead, kChange, kHeld };

// Refuses a folder without a run, without a checkpoint or without states, and says which.
absl::StatusOr<RunStates> OpenRunStates(const std::string& run, Use use = Use::kRead);

// What the states of a run that is over take, and where: "1.2 GB in runs/x/state". Nothing where
// they ended with the processes.
absl::StatusOr<std::string> RoomOfStates(const Config& config, const std::string& run);

// state.keep = false: deletes the states of a run that is over, wherever they are, and leaves a
// note in the run's folder. Nobody else may run in it.
absl::Status DropStates(const Config& config, const std::string& run);

// An error that says so where a run's states were dropped.
absl::Status CheckStatesKept(const std::string& run);

}  // namespace macaw::cli
