#include "state/config.h"

#include "state/redis_url.h"

namespace macaw::state {

using settings::Between;
using settings::Role;
using settings::Section;
using settings::Value;

namespace {

constexpr uint64_t kMegabyte = uint64_t{1} << 20;
constexpr double kMostMegabytes = 1e9;  // in bytes they fit into 64 bits

}  // namespace

StoreOptions StateConfig::Options() const {
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
  const auto is = [](const char* store) {
    return [store](const C& config) { return config.store == store; };
  };
  const auto outlasts = [](const C& config) { return config.store != "memory"; };
  const char* const needs_outlasting = "state.store = \"disk\" or \"redis\"";
  f.AddPath("path", &C::path,
            "disk: a folder of this run's own; default: state/ in the run's folder")
      .Needs(is("disk"), "state.store = \"disk\"");
  settings::Field<C>& url = f.Add(
      "url", &C::url,
      "redis: unix:/path, redis://:password@host:port/db, or spawn: one of the run's own; the "
      "password is not kept: MACAW_REDIS_PASSWORD");
  url.Needs(is("redis"), "state.store = \"redis\"");
  url.get = [](const C& config) -> std::optional<Value> {
    if (config.url.empty()) return std::nullopt;
    return Value{WithoutPassword(config.url)};
  };
  f.Add("sync", &C::sync,
        "disk, spawn: whether states survive a crash of the machine, not only of processes")
      .Needs(
          [](const C& config) {
            return config.store == "disk" || (config.store == "redis" && config.url == "spawn");
          },
          "state.store = \"disk\" or state.url = \"spawn\"");
  f.Add("keep", &C::keep,
        "whether states stay when the run is over; without them it cannot be resumed")
      .Needs(outlasts, needs_outlasting);
  f.Add("memory_mb", &C::memory_mb, "memory: megabytes that the store may hold",
        Between(1, kMostMegabytes))
      .Needs(is("memory"), "state.store = \"memory\"");
  f.Add("cache_mb", &C::cache_mb, "disk, redis: megabytes of cache in each worker process",
        Between(0, kMostMegabytes))
      .Needs(outlasts, needs_outlasting);
  for (settings::Field<C>& field : f.fields()) field.role = Role::kCompute;
  return f;
}

}  // namespace macaw::state
