#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "state/client_state_store.h"

namespace macaw::state {

// Where this node keeps its clients' states. Part of the node configuration: never leaves the node,
// never a result.
struct StoreOptions {
  std::string store = "disk";                 // "disk", "memory", "redis"
  std::string path;                           // disk: the folder
  std::string url;                            // redis: where (redis_url.h)
  std::string password;                       // redis: unless the URL has one
  bool sync = true;                           // disk: Flush outlasts a crash of the machine
  uint64_t memory_bytes = uint64_t{4} << 30;  // memory: the most it may hold
  uint64_t cache_bytes = uint64_t{64} << 20;  // disk, redis: memory in front of it
  bool ends_with_process() const { return store == "memory"; }
};

// `run` names the run that the states belong to. Errors name the key of [state] to change.
absl::StatusOr<std::unique_ptr<ClientStateStore>> OpenStore(const StoreOptions& options,
                                                            StateSchema schema, const Digest& run);

// Whether anybody answers there, within seconds; OK for stores that are nobody's process.
// kUnavailable, or what Redis says to it.
absl::Status CheckReachable(const StoreOptions& options);

}  // namespace macaw::state
