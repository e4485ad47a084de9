#include "state/cached_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>

#include "state/memory_store.h"
#include "tests/state/states.h"

namespace macaw::state {
namespace {

constexpr uint64_t kBlob = 128 + 128 + 64;  // header, 20 floats padded, 1 double padded

// A cache over a store in which versions can be hidden, to see what the cache serves by itself.
struct Tiers {
  explicit Tiers(uint64_t budget)
      : schema(TwoItems()),
        state(schema, 1),
        back(new MemoryStateStore(schema, 1 << 20)),
        cached(std::unique_ptr<ClientStateStore>(back), budget) {}

  // Reads a version; whether the cache had it.
  bool ReadsFromCache(const Attempt& version) {
    const absl::StatusOr<BlobPtr> stored = back->GetBlob(version);
    EXPECT_TRUE(stored.ok());
    EXPECT_TRUE(back->Delete(std::span(&version, 1)).ok());
    const bool hit = cached.Get(version).ok();
    EXPECT_TRUE(back->PutBlob(version, *stored).ok());
    EXPECT_TRUE(hit || state.Equals(*cached.Get(version)));
    return hit;
  }

  const StateSchema schema;
  const TestState state;
  MemoryStateStore* const back;
  CachedStateStore cached;
};

TEST(CachedStateStore, KeepsTheLatestWithinItsBudget) {
  Tiers tiers(2 * kBlob);
  for (const uint64_t client : {1, 2, 3})
    ASSERT_TRUE(tiers.cached.Put(Version(client, 1, client), tiers.state.views()).ok());
  const auto hits = [&](uint64_t client) {
    return tiers.ReadsFromCache(Version(client, 1, client));
  };
  EXPECT_TRUE(hits(2));
  EXPECT_TRUE(hits(3));
  EXPECT_FALSE(hits(1)) << "it had to make room";
  EXPECT_TRUE(hits(1)) << "it was read last";
  EXPECT_FALSE(hits(2)) << "it was used longest ago";
}

TEST(CachedStateStore, DoesNotServeWhatWasDeleted) {
  const StateSchema schema = TwoItems();
  const TestState state(schema, 1);
  CachedStateStore store(std::make_unique<MemoryStateStore>(schema, 1 << 20), 2 * kBlob);
  ASSERT_TRUE(store.Put(Version(1, 1, 1), state.views()).ok());
  const Attempt gone[] = {Version(1, 1, 1)};
  ASSERT_TRUE(store.Delete(gone).ok());
  EXPECT_EQ(store.Get(Version(1, 1, 1)).status().code(), absl::StatusCode::kNotFound);
}

TEST(CachedStateStore, WithoutABudgetItKeepsNothing) {
  Tiers tiers(0);
  ASSERT_TRUE(tiers.cached.Put(Version(1, 1, 1), tiers.state.views()).ok());
  EXPECT_FALSE(tiers.ReadsFromCache(Version(1, 1, 1)));
  EXPECT_FALSE(tiers.ReadsFromCache(Version(1, 1, 1)));
}

}  // namespace
}  // namespace macaw::state
