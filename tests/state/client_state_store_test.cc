#include "state/client_state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <thread>

#include "state/blob.h"
#include "state/cached_store.h"
#include "state/disk_store.h"
#include "state/memory_store.h"
#include "state/range_digest.h"
#include "tests/state/states.h"

#ifdef MACAW_REDIS
#include "state/redis_store.h"
#include "tests/state/redis_server.h"
#endif

namespace macaw::state {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What every store promises, whatever its back end.
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
       {Version(8, 1, 5), Version(7, 2, 3), Version(7, 1, 4), Version(71, 1, 2)}) {
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

TEST_P(ClientStateStoreContract, ABatchEqualsSingleCalls) {
  std::vector<TestState> states;
  std::vector<NamedBlob> batch;
  std::vector<Attempt> versions;
  for (int i = 0; i < 30; ++i) {
    states.emplace_back(schema_, i);
    versions.push_back(Version(static_cast<uint64_t>(i % 7), 1, static_cast<uint64_t>(10 + i)));
    batch.push_back({versions.back(), std::make_shared<const AlignedBuffer>(*EncodeBlob(
                                          versions.back(), states.back().views(), schema_))});
  }
  ASSERT_TRUE(store_->PutBlobs(batch).ok());
  EXPECT_TRUE(store_->PutBlobs(batch).ok());  // a retry
  versions.insert(versions.begin() + 5, Version(99, 1, 99));
  const std::vector<absl::StatusOr<BlobPtr>> blobs = store_->GetBlobs(versions);
  ASSERT_EQ(blobs.size(), 31u);
  for (size_t i = 0; i < blobs.size(); ++i) {
    if (i == 5) {
      EXPECT_EQ(blobs[i].status().code(), absl::StatusCode::kNotFound);
      EXPECT_THAT(std::string(blobs[i].status().message()), HasSubstr("client 99"));
      continue;
    }
    ASSERT_TRUE(blobs[i].ok()) << blobs[i].status();
    EXPECT_TRUE(states[i > 5 ? i - 1 : i].Equals(*OpenBlob(*blobs[i], versions[i], schema_)));
  }
  // If one name is already used for other bytes, the error names it, whatever else is in the batch.
  const Attempt taken = versions[0];
  batch.push_back({taken, std::make_shared<const AlignedBuffer>(
                              *EncodeBlob(taken, TestState(schema_, 77).views(), schema_))});
  const absl::Status refused = store_->PutBlobs(batch);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(Describe(taken)));
  EXPECT_TRUE(store_->PutBlobs({}).ok());
  EXPECT_TRUE(store_->GetBlobs({}).empty());
}

TEST_P(ClientStateStoreContract, DeletesABatchAndOnlyThat) {
  const TestState state(schema_, 1);
  const auto of = [](uint64_t client) { return Version(client, 1, 10 + client); };
  for (uint64_t client = 0; client < 4; ++client)
    ASSERT_TRUE(store_->Put(of(client), state.views()).ok());
  const ClientState held = *store_->Get(of(1));
  const std::vector<Attempt> batch = {of(1), of(3), of(99)};
  ASSERT_TRUE(store_->Delete(batch).ok());
  EXPECT_TRUE(*store_->Contains(of(0)));
  EXPECT_FALSE(*store_->Contains(of(1)));
  EXPECT_TRUE(*store_->Contains(of(2)));
  EXPECT_FALSE(*store_->Contains(of(3)));
  EXPECT_EQ(store_->Get(of(1)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->Delete(batch).ok());  // again: nothing left to do
  EXPECT_TRUE(state.Equals(held));          // states already read stay valid
  EXPECT_TRUE(store_->Put(of(1), state.views()).ok());
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
  views[1] = {};
  EXPECT_TRUE(refused(views));
  EXPECT_FALSE(*store_->Contains(Version(7, 1, 3)));
}

// Several threads work as workers do: in each round, every thread deletes its version of the
// previous round, stores one and reads it. So writes happen next to deletions.
TEST_P(ClientStateStoreContract, ServesManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  const auto version = [](int round, int thread) {
    return Version(static_cast<uint64_t>(thread), 1,
                   static_cast<uint64_t>(round * kThreads + thread));
  };
  std::atomic<int> right = 0;
  std::barrier round_over(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int round = 0; round < kRounds; ++round) {
          const TestState state(schema_, round * kThreads + thread);
          bool good = true;
          if (round > 0) {
            const Attempt replaced[] = {version(round - 1, thread)};
            good = store_->Delete(replaced).ok();
          }
          good = store_->Put(version(round, thread), state.views()).ok() && good;
          round_over.arrive_and_wait();
          const auto read = store_->Get(version(round, thread));
          if (good && read.ok() && state.Equals(*read)) ++right;
          round_over.arrive_and_wait();
        }
      });
    }
  }
  EXPECT_EQ(right, kThreads * kRounds);
}

TEST_P(ClientStateStoreContract, ListsWhatItHolds) {
  const TestState state(schema_, 1);
  const std::vector<Attempt> put = {Version(1, 1, 5), Version(2, 1, 6), Version(1, 2, 1)};
  for (const Attempt& version : put) ASSERT_TRUE(store_->Put(version, state.views()).ok());
  const Attempt gone[] = {put[1]};
  ASSERT_TRUE(store_->Delete(gone).ok());
  std::vector<Attempt> listed;
  ASSERT_TRUE(store_->ForEach([&](const Attempt& version) { listed.push_back(version); }).ok());
  EXPECT_THAT(listed, ::testing::UnorderedElementsAre(put[0], put[2]));
}

TEST_P(ClientStateStoreContract, FlushesAnyNumberOfTimes) {
  EXPECT_TRUE(store_->Flush().ok());
  const TestState state(schema_, 1);
  ASSERT_TRUE(store_->Put(Version(7, 1, 3), state.views()).ok());
  EXPECT_TRUE(store_->Flush().ok());
  EXPECT_TRUE(store_->Flush().ok());
  EXPECT_TRUE(state.Equals(*store_->Get(Version(7, 1, 3))));
}

TEST_P(ClientStateStoreContract, TheDigestDependsOnClientsAndContentsOnly) {
  const TestState one(schema_, 1);
  const TestState two(schema_, 2);
  for (const auto& [version, state] :
       {std::pair(Version(1, 1, 1), &one), std::pair(Version(2, 1, 2), &two),
        std::pair(Version(1, 1, 3), &two), std::pair(Version(2, 3, 9), &two)}) {
    ASSERT_TRUE(store_->Put(version, state->views()).ok());
  }
  const auto digest = [&](std::vector<Attempt> versions) {
    return *DigestOfRange(*store_, versions);
  };
  EXPECT_EQ(digest({Version(1, 1, 1), Version(2, 1, 2)}),
            digest({Version(1, 1, 1), Version(2, 3, 9)}));
  EXPECT_NE(digest({Version(1, 1, 1), Version(2, 1, 2)}),
            digest({Version(1, 1, 3), Version(2, 1, 2)}));
  EXPECT_NE(digest({Version(1, 1, 3)}), digest({Version(2, 1, 2)}));
  const std::vector<Attempt> missing = {Version(9, 1, 11)};
  EXPECT_EQ(DigestOfRange(*store_, missing).status().code(), absl::StatusCode::kNotFound);
}

#ifdef MACAW_REDIS
// One server for all tests; the folder's name keeps them apart.
std::unique_ptr<ClientStateStore> MakeRedis(const std::string& folder, const StateSchema& schema) {
  static const RedisServer server;
  return *RedisStateStore::Open(server.options(), schema, DigestOf(folder));
}

std::unique_ptr<ClientStateStore> MakeTierOverRedis(const std::string& folder,
                                                    const StateSchema& schema) {
  // The cache holds two states.
  return std::make_unique<CachedStateStore>(MakeRedis(folder, schema), 700);
}

INSTANTIATE_TEST_SUITE_P(EveryOne, ClientStateStoreContract,
                         ::testing::ValuesIn(RedisServer::Available()
                                                 ? std::vector<BackEnd>{{"Redis", MakeRedis},
                                                                        {"TierOverRedis",
                                                                         MakeTierOverRedis}}
                                                 : std::vector<BackEnd>{}),
                         [](const auto& info) { return info.param.name; });
#endif

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
                                return *DiskStateStore::Open(folder, schema, DigestOf("run"));
                              }},
                      BackEnd{"Tier",
                              [](const std::string& folder,
                                 const StateSchema& schema) -> std::unique_ptr<ClientStateStore> {
                                // The cache holds two states, so reads are served by both the cache
                                // and the store.
                                return std::make_unique<CachedStateStore>(
                                    *DiskStateStore::Open(folder, schema, DigestOf("run")), 700);
                              }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace macaw::state
