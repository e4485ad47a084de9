#include "state/config.h"

#include "state/redis_url.h"

namespace macaw::state {

using settings::AtLeast;
using settings::Role;
using settings::Section;
using settings::Value;

StoreOptions StateConfig::Options() const {
  constexpr uint64_t kMegabyte = uint64_t{1} << 20;
  return {.store = store,
          .path = path,
          .url = url,
          .sync = sync,
          .memory_bytes = memory_mb * kMegabyte,
          .cache_bytes = cache_mb * kMegabyte};
}

Section<StateConfig> StateSection() {
  using C = StateConfig;
  Section<C> f;
  f.AddChoice("store", &C::store, {"disk", "memory", "redis"},
              "where client states are kept; memory: one worker process, not resumable");
  f.AddPath("path", &C::path,
            "disk: a folder of this run's own; default: state/ in the run's folder");
  f.Add("url", &C::url,
        "redis: unix:/path, redis://:password@host:port/db, or spawn: one of the run's own; the "
        "password is not kept: MACAW_REDIS_PASSWORD")
      .get = [](const C& config) -> std::optional<Value> {
    if (config.url.empty()) return std::nullopt;
    return Value{WithoutPassword(config.url)};
  };
  f.Add("sync", &C::sync,
        "disk, spawn: states outlast a crash of the machine, too, not only of processes");
  f.Add("keep", &C::keep, "false: dropped when the run is over, which then cannot go on");
  f.Add("memory_mb", &C::memory_mb, "memory: the most it may hold", AtLeast(1));
  f.Add("cache_mb", &C::cache_mb, "disk, redis: memory in front of it, in each worker process",
        AtLeast(0));
  for (settings::Field<C>& field : f.fields()) field.role = Role::kCompute;
  return f;
}

}  // namespace macaw::state
