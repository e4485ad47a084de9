// Random sequences of put, commit, abort, crash and sweep, compared with a model that is a
// std::map: every version that the index names can always be read and holds what was stored.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>

#include "core/random.h"
#include "state/cached_store.h"
#include "state/disk_store.h"
#include "tests/state/states.h"

#ifdef MACAW_REDIS
#include "state/redis_store.h"
#include "tests/state/redis_server.h"
#endif

namespace macaw::state {
namespace {

constexpr uint64_t kClients = 60;

using Open = std::function<std::unique_ptr<ClientStateStore>(const StateSchema&)>;

class World {
 public:
  // Each call of `open` opens the same store again; it must outlive this object.
  World(uint64_t seed, const Open& open) : random_({.seed = seed}), open_(open) { Restart(); }

  // One round: some clients store a state, some of their parts are accepted, some replaced versions
  // are deleted.
  void Round() {
    std::map<uint64_t, Attempt> accepted;
    for (uint64_t n = 1 + random_.Below(20); n > 0; --n) {
      const uint64_t client = random_.Below(kClients);
      const Attempt attempt = Version(client, epoch_, ++counter_);
      if (random_.Below(8) == 0) continue;  // the worker died before it stored a state
      const int content = static_cast<int>(random_.Below(1000));
      ASSERT_TRUE(store_->Put(attempt, TestState(schema_, content).views()).ok());
      contents_[attempt] = content;
      if (random_.Below(4) != 0) accepted[client] = attempt;  // else nobody names it
    }
    ASSERT_TRUE(store_->Flush().ok());
    std::vector<Attempt> deletable;
    for (const auto& [client, attempt] : accepted) {
      const auto found = index_.find(client);
      if (found != index_.end()) replaced_.push_back(found->second);
      index_[client] = attempt;
    }
    std::set<Attempt> kept;
    for (const auto& [client, attempt] : checkpoint_) kept.insert(attempt);
    std::erase_if(replaced_, [&](const Attempt& version) {
      if (kept.contains(version) || random_.Below(3) == 0) return false;
      deletable.push_back(version);
      return true;
    });
    ASSERT_TRUE(store_->Delete(deletable).ok());
    for (const Attempt& version : deletable) contents_.erase(version);
  }

  void Restart() {
    ++epoch_;
    counter_ = 0;
    store_ = std::make_unique<CachedStateStore>(open_(schema_), 2000);
  }

  // Returns to the state of a checkpoint: everything accepted since is forgotten.
  void Crash() {
    index_ = checkpoint_;
    replaced_.clear();
    Restart();
  }
  void Checkpoint() { checkpoint_ = index_; }

  void Check() {
    for (const auto& [client, version] : index_) {
      const auto state = store_->Get(version);
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_TRUE(TestState(schema_, contents_.at(version)).Equals(*state));
    }
    std::set<Attempt> listed;
    ASSERT_TRUE(store_->ForEach([&](const Attempt& version) { listed.insert(version); }).ok());
    std::set<Attempt> expected;
    for (const auto& [version, content] : contents_) expected.insert(version);
    EXPECT_EQ(listed, expected);
  }

  RandomStream& random() { return random_; }

 private:
  RandomStream random_;
  const Open& open_;
  const StateSchema schema_ = TwoItems();
  std::unique_ptr<ClientStateStore> store_;
  uint32_t epoch_ = 0;
  uint64_t counter_ = 0;
  std::map<uint64_t, Attempt> index_, checkpoint_;
  std::map<Attempt, int> contents_;
  std::vector<Attempt> replaced_;
};

// `kill` does to the store itself what a crash would do.
void Live(
    World& world, const std::function<void()>& kill = [] {}) {
  for (int round = 0; round < 40; ++round) {
    world.Round();
    switch (world.random().Below(8)) {
      case 0:
        world.Restart();
        break;
      case 1:
        kill();
        world.Crash();
        break;
      case 2:
      case 3:
        world.Checkpoint();
        break;
      default:
        break;
    }
    world.Check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(StoreModel, WhatTheIndexNamesIsAlwaysThereOnDisk) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const TemporaryFolder folder;
    const Open open = [&](const StateSchema& schema) {
      return *DiskStateStore::Open(folder.path(), schema, DigestOf("model test"));
    };
    World world(seed, open);
    Live(world);
  }
}

#ifdef MACAW_REDIS
TEST(StoreModel, WhatTheIndexNamesIsAlwaysThereInARedisThatIsKilled) {
  if (!RedisServer::Available()) GTEST_SKIP() << "/usr/bin/redis-server is not installed";
  RedisServer server;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    const Open open = [&](const StateSchema& schema) {
      return *RedisStateStore::Open(server.options(), schema,
                                    DigestOf(absl::StrCat("model test ", seed)));
    };
    World world(seed, open);
    Live(world, [&] {
      server.Kill();
      server.Start();
    });
  }
}
#endif

}  // namespace
}  // namespace macaw::state
