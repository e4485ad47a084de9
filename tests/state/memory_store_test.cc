#include "state/memory_store.h"

#include <gtest/gtest.h>

#include "tests/state/states.h"

namespace macaw::state {
namespace {

TEST(MemoryStateStore, StaysWithinItsLimit) {
  const StateSchema schema = TwoItems();
  const TestState state(schema, 1);
  MemoryStateStore store(
      schema, 2 * (128 + 128 + 64));  // room for two: header, 20 floats padded, 1 double padded
  ASSERT_TRUE(store.Put(Version(1, 1, 1), state.views()).ok());
  ASSERT_TRUE(store.Put(Version(2, 1, 1), state.views()).ok());
  EXPECT_EQ(store.Put(Version(3, 1, 1), state.views()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.Put(Version(2, 1, 1), state.views()).ok());  // a retry needs no room
  const Attempt gone[] = {Version(1, 1, 1)};
  ASSERT_TRUE(store.Delete(gone).ok());
  EXPECT_TRUE(store.Put(Version(3, 1, 1), state.views()).ok());
}

}  // namespace
}  // namespace macaw::state
