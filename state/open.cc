#include "state/open.h"

#include <signal.h>

#include <array>
#include <utility>

#include "core/status.h"
#include "state/cached_store.h"
#include "state/disk_store.h"
#include "state/folder_of_run.h"
#include "state/memory_store.h"

#ifdef MACAW_REDIS
#include "state/redis_pool.h"
#include "state/redis_store.h"
#endif

namespace macaw::state {
namespace {

#ifdef MACAW_REDIS
constexpr Duration kPing = std::chrono::seconds(3);

absl::StatusOr<std::unique_ptr<ClientStateStore>> OpenRedis(const StoreOptions& options,
                                                            StateSchema schema, const Digest& run) {
  MACAW_ASSIGN_OR_RETURN(RedisUrl url, ParseRedisUrl(options.url));
  if (url.password.empty()) url.password = options.password;
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<RedisStateStore> redis,
                         RedisStateStore::Open({.url = std::move(url)}, std::move(schema), run));
  return std::make_unique<CachedStateStore>(std::move(redis), options.cache_bytes);
}
absl::Status PingRedis(const StoreOptions& options) {
  MACAW_ASSIGN_OR_RETURN(RedisUrl url, ParseRedisUrl(options.url));
  if (url.password.empty()) url.password = options.password;
  RedisPool pool({.url = std::move(url), .answer = kPing, .patience = kPing});
  // RedisPool requires it; child processes inherit it.
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  const absl::Status answered = pool.Call(std::array{RedisCommand{"PING"}}).status();
  ::signal(SIGPIPE, before);
  return Annotate(answered, "state.url");
}
#else
// OpenRedis reports the error.
absl::Status PingRedis(const StoreOptions&) { return absl::OkStatus(); }
absl::StatusOr<std::unique_ptr<ClientStateStore>> OpenRedis(const StoreOptions&, StateSchema,
                                                            const Digest&) {
  return absl::UnimplementedError("this program was built without the Redis store (MACAW_REDIS)");
}
#endif

}  // namespace

absl::Status CheckReachable(const StoreOptions& options) {
  return options.store == "redis" ? PingRedis(options) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ClientStateStore>> OpenStore(const StoreOptions& options,
                                                            StateSchema schema, const Digest& run) {
  if (options.store == "memory")
    return std::make_unique<MemoryStateStore>(std::move(schema), options.memory_bytes);
  if (options.store == "redis") return OpenRedis(options, std::move(schema), run);
  if (options.store != "disk") {
    return absl::InvalidArgumentError(
        absl::StrCat("state.store is \"", options.store, "\"; known: disk, memory, redis"));
  }
  if (options.path.empty()) {
    return absl::InvalidArgumentError(
        "the run's algorithm keeps client states, but this node has no folder for them: set "
        "state.path, or start macaw-worker with --run-dir (on the server's host) or --state");
  }
  std::string folder = options.path;
  if (options.each_run) {
    MACAW_ASSIGN_OR_RETURN(folder, FolderOfRun(options.path, run));
  }
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<DiskStateStore> disk,
                         DiskStateStore::Open(folder, std::move(schema), run,
                                              options.sync ? DiskStateStore::Durability::kMachine
                                                           : DiskStateStore::Durability::kProcess));
  return std::make_unique<CachedStateStore>(std::move(disk), options.cache_bytes);
}

}  // namespace macaw::state
