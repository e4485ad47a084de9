#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "state/client_state_store.h"

namespace macaw::state {

// Where this node keeps its clients' states. Part of the node configuration: it never leaves the
// node and never affects a result.
struct StoreOptions {
  std::string store = "disk";  // "disk", "memory", "redis"
  std::string path;            // disk: the folder
  bool each_run = false;       // disk: a folder in `path` for each run (folder_of_run.h)
  std::string url;             // redis: the address (redis_url.h)
  std::string password;        // redis: used unless the URL has one
  bool sync = true;            // disk: after Flush, states survive a crash of the machine
  uint64_t memory_bytes = uint64_t{4} << 30;  // memory: the limit
  // Disk, redis: size of the memory cache in front of it.
  uint64_t cache_bytes = uint64_t{64} << 20;
  bool ends_with_process() const { return store == "memory"; }
};

// `run` names the run that the states belong to. Errors name the key of [state] to change.
absl::StatusOr<std::unique_ptr<ClientStateStore>> OpenStore(const StoreOptions& options,
                                                            StateSchema schema, const Digest& run);

// Checks, within seconds, whether the store can be reached. Always OK for stores that are not a
// process of their own. Otherwise kUnavailable, or Redis' error.
absl::Status CheckReachable(const StoreOptions& options);

}  // namespace macaw::state
