#include "state/cached_store.h"

#include <gtest/gtest.h>

#include <utility>

#include "state/memory_store.h"
#include "tests/state/states.h"

namespace macaw::state {
namespace {

constexpr uint64_t kBlob = 128 + 128 + 64;  // header, 20 floats padded, 1 double padded

TEST(CachedStateStore, KeepsTheLatestWithinItsBudget) {
  const StateSchema schema = TwoItems();
  const TestState state(schema, 1);
  CachedStateStore store(std::make_unique<MemoryStateStore>(schema, 1 << 20), 2 * kBlob);
  for (const uint64_t client : {1, 2, 3})
    ASSERT_TRUE(store.Put(Version(client, 1, client), state.views()).ok());
  const auto reads = [&](uint64_t client) {
    const uint64_t before = store.counts().hits;
    EXPECT_TRUE(store.Get(Version(client, 1, client)).ok());
    return store.counts().hits > before;
  };
  EXPECT_TRUE(reads(2));
  EXPECT_TRUE(reads(3));
  EXPECT_FALSE(reads(1)) << "it had to make room";
  EXPECT_TRUE(reads(1)) << "it was read last";
  EXPECT_FALSE(reads(2)) << "it was used longest ago";
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
  const StateSchema schema = TwoItems();
  const TestState state(schema, 1);
  CachedStateStore store(std::make_unique<MemoryStateStore>(schema, 1 << 20), 0);
  ASSERT_TRUE(store.Put(Version(1, 1, 1), state.views()).ok());
  EXPECT_TRUE(state.Equals(*store.Get(Version(1, 1, 1))));
  EXPECT_EQ(store.counts().hits, 0u);
}

}  // namespace
}  // namespace macaw::state
