#include "state/client_state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "state/disk_store.h"
#include "state/memory_store.h"
#include "tests/state/states.h"

namespace macaw::state {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What every store promises, whatever it is made of.
struct BackEnd {
  std::string name;
  std::function<std::unique_ptr<ClientStateStore>(const std::string& folder,
                                                  const StateSchema& schema)>
      make;
};

class ClientStateStoreContract : public ::testing::TestWithParam<BackEnd> {
 protected:
  const StateSchema schema_ = TwoItems();
  const TemporaryFolder folder_;
  const std::unique_ptr<ClientStateStore> store_ = GetParam().make(folder_.path(), schema_);
};

TEST_P(ClientStateStoreContract, GivesBackWhatWasPut) {
  const TestState state(schema_, 1);
  ASSERT_TRUE(store_->Put(Version(7, 1, 3), state.views()).ok());
  const ClientState read = *store_->Get(Version(7, 1, 3));
  EXPECT_TRUE(state.Equals(read));
  for (const ConstVectorView& item : read.items) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(item.bytes.data()) % 64, 0u);
  }
}

TEST_P(ClientStateStoreContract, AMissingVersionIsAnErrorThatNamesIt) {
  const TestState state(schema_, 1);
  ASSERT_TRUE(store_->Put(Version(7, 1, 3), state.views()).ok());
  for (const Attempt& version :
       {Version(8, 1, 3), Version(7, 2, 3), Version(7, 1, 4), Version(71, 1, 3)}) {
    EXPECT_EQ(store_->Get(version).status().code(), absl::StatusCode::kNotFound);
    EXPECT_FALSE(*store_->Contains(version));
  }
  EXPECT_THAT(std::string(store_->Get(Version(8, 2, 5)).status().message()),
              AllOf(HasSubstr("client 8"), HasSubstr("version 2.5")));
  EXPECT_TRUE(*store_->Contains(Version(7, 1, 3)));
}

TEST_P(ClientStateStoreContract, VersionsOfAClientLiveSideBySide) {
  const TestState older(schema_, 1);
  const TestState newer(schema_, 2);
  ASSERT_TRUE(store_->Put(Version(7, 1, 3), older.views()).ok());
  ASSERT_TRUE(store_->Put(Version(7, 1, 4), newer.views()).ok());
  EXPECT_TRUE(older.Equals(*store_->Get(Version(7, 1, 3))));
  EXPECT_TRUE(newer.Equals(*store_->Get(Version(7, 1, 4))));
}

TEST_P(ClientStateStoreContract, NothingIsOverwritten) {
  const TestState state(schema_, 1);
  const TestState other(schema_, 2);
  ASSERT_TRUE(store_->Put(Version(7, 1, 3), state.views()).ok());
  EXPECT_TRUE(store_->Put(Version(7, 1, 3), state.views()).ok());  // a retry
  EXPECT_EQ(store_->Put(Version(7, 1, 3), other.views()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(state.Equals(*store_->Get(Version(7, 1, 3))));
}

TEST_P(ClientStateStoreContract, DeletesABatchAndOnlyThat) {
  const TestState state(schema_, 1);
  for (uint64_t client = 0; client < 4; ++client)
    ASSERT_TRUE(store_->Put(Version(client, 1, 1), state.views()).ok());
  const ClientState held = *store_->Get(Version(1, 1, 1));
  const std::vector<Attempt> batch = {Version(1, 1, 1), Version(3, 1, 1), Version(99, 1, 1)};
  ASSERT_TRUE(store_->Delete(batch).ok());
  EXPECT_TRUE(*store_->Contains(Version(0, 1, 1)));
  EXPECT_FALSE(*store_->Contains(Version(1, 1, 1)));
  EXPECT_TRUE(*store_->Contains(Version(2, 1, 1)));
  EXPECT_FALSE(*store_->Contains(Version(3, 1, 1)));
  EXPECT_TRUE(store_->Delete(batch).ok());  // again: nothing left to do
  EXPECT_TRUE(state.Equals(held));          // what was read stays valid
  EXPECT_TRUE(store_->Put(Version(1, 1, 1), state.views()).ok());
}

TEST_P(ClientStateStoreContract, RefusesVectorsThatDoNotFitTheSchema) {
  TestState state(schema_, 1);
  std::vector<ConstVectorView> views = state.views();
  const auto refused = [&](std::span<const ConstVectorView> items) {
    return store_->Put(Version(7, 1, 3), items).code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(std::span(views).first(1)));
  std::swap(views[0], views[1]);
  EXPECT_TRUE(refused(views));
  std::swap(views[0], views[1]);
  views[1].device = Device::kCuda;
  EXPECT_TRUE(refused(views));
  views[1] = {};
  EXPECT_TRUE(refused(views));
  EXPECT_FALSE(*store_->Contains(Version(7, 1, 3)));
}

TEST_P(ClientStateStoreContract, ServesManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kEach = 10;
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kEach; ++i) {
          const auto client = static_cast<uint64_t>(thread * kEach + i);
          const TestState state(schema_, static_cast<int>(client));
          const bool put = store_->Put(Version(client, 1, client), state.views()).ok();
          const auto read = store_->Get(Version(client, 1, client));
          const Attempt gone[] = {Version(client, 1, client)};
          if (put && read.ok() && state.Equals(*read) && store_->Delete(gone).ok()) ++right;
        }
      });
    }
  }
  EXPECT_EQ(right, kThreads * kEach);
}

INSTANTIATE_TEST_SUITE_P(
    Every, ClientStateStoreContract,
    ::testing::Values(BackEnd{"Memory",
                              [](const std::string&,
                                 const StateSchema& schema) -> std::unique_ptr<ClientStateStore> {
                                return std::make_unique<MemoryStateStore>(schema, 1 << 20);
                              }},
                      BackEnd{"Disk",
                              [](const std::string& folder,
                                 const StateSchema& schema) -> std::unique_ptr<ClientStateStore> {
                                return *DiskStateStore::Open(folder, schema);
                              }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace macaw::state
