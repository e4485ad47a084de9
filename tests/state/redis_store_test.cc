#include "state/redis_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/state/redis_server.h"

namespace macaw::state {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Digest kRun = DigestOf("a run");

class RedisStateStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::Available()) GTEST_SKIP() << "/usr/bin/redis-server is not installed";
    server_ = std::make_unique<RedisServer>();
  }
  std::unique_ptr<RedisStateStore> Open(Duration patience = FromSeconds(60)) {
    auto store = RedisStateStore::Open(server_->options(patience), schema_, kRun);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  const StateSchema schema_ = TwoItems();
  const TestState state_{schema_, 1};
  std::unique_ptr<RedisServer> server_;
};

TEST_F(RedisStateStoreTest, ARestartedRedisIsWaitedForAndHasEverything) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(Version(7, 1, 3), state_.views()).ok());
  server_->Kill();
  absl::StatusOr<ClientState> read;
  {
    const std::jthread reader([&] { read = store->Get(Version(7, 1, 3)); });
    server_->Start();
  }
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(state_.Equals(*read));
  EXPECT_TRUE(store->Put(Version(7, 1, 4), state_.views()).ok());
}

TEST_F(RedisStateStoreTest, ARedisThatComesBackEmptyIsNoFreshStart) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(Version(7, 1, 3), state_.views()).ok());
  server_->Kill();
  server_->Forget();
  server_->Start();
  const absl::Status status = store->Get(Version(7, 1, 3)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("client 7"), HasSubstr("unix:/")));
}

TEST_F(RedisStateStoreTest, AFullRedisSaysSo) {
  const auto store = Open();
  server_->Tell({"CONFIG", "SET", "maxmemory", "1"});
  const absl::Status status = store->Put(Version(7, 1, 3), state_.views());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("client 7"));
  server_->Tell({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(store->Put(Version(7, 1, 3), state_.views()).ok());
}

TEST_F(RedisStateStoreTest, AHungRedisIsGivenUpWithAMessageAndServesAgainOnceItGoesOn) {
  ASSERT_TRUE(Open()->Put(Version(7, 1, 3), state_.views()).ok());  // it has started
  const auto store = Open(FromSeconds(3));
  server_->Signal(SIGSTOP);
  const absl::Status status = store->Get(Version(7, 1, 3)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not answered for 3 s"));
  server_->Signal(SIGCONT);
  EXPECT_TRUE(state_.Equals(*store->Get(Version(7, 1, 3))));
}

TEST_F(RedisStateStoreTest, ARedisThatEvictsIsRefused) {
  server_->Tell({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  const auto store = RedisStateStore::Open(server_->options(), schema_, kRun);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("noeviction"));
}

TEST_F(RedisStateStoreTest, ARedisThatKeepsNothingOnDiskIsRefused) {
  server_->Tell({"CONFIG", "SET", "appendonly", "no"});
  const auto store = RedisStateStore::Open(server_->options(), schema_, kRun);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("appendonly"));
  server_->Tell({"CONFIG", "SET", "save", "3600 1"});  // snapshots are sufficient
  EXPECT_TRUE(RedisStateStore::Open(server_->options(), schema_, kRun).ok());
}

TEST_F(RedisStateStoreTest, ARedisThatDoesNotTellItsSettingsIsTakenWithAWarning) {
  const std::vector<std::vector<std::string>> hidden = {
      {"--rename-command", "CONFIG", ""},
      {"--user", "default", "on", "nopass", "~*", "&*", "+@all", "-config"}};
  for (const std::vector<std::string>& settings : hidden) {
    const RedisServer server(settings);
    testing::internal::CaptureStderr();
    const auto store = RedisStateStore::Open(server.options(), schema_, kRun);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("redis_does_not_tell"));
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE((*store)->Put(Version(7, 1, 3), state_.views()).ok());
  }
}

TEST_F(RedisStateStoreTest, WhatAKilledWriterLeftOfALargeStateIsFound) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(Version(7, 1, 3), state_.views()).ok());
  // Remove the last piece.
  const std::string key = absl::StrCat("macaw:{", kRun.Hex().substr(0, 32), ":8}:1.4:5");
  server_->Tell({"SET", key, "a piece"});
  std::vector<Attempt> stored;
  ASSERT_TRUE(store->ForEach([&](const Attempt& version) { stored.push_back(version); }).ok());
  EXPECT_EQ(stored, std::vector<Attempt>({Version(7, 1, 3), Version(8, 1, 4)}));
}

TEST_F(RedisStateStoreTest, NeedsThePasswordAndNeverPrintsIt) {
  server_ = std::make_unique<RedisServer>(std::vector<std::string>{"--requirepass", "sesame"});
  RedisPool::Options options = server_->options();
  EXPECT_THAT(std::string(RedisStateStore::Open(options, schema_, kRun).status().message()),
              HasSubstr("MACAW_REDIS_PASSWORD"));
  options.url.password = "barley";
  const auto refused = RedisStateStore::Open(options, schema_, kRun);
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), Not(HasSubstr("barley")));
  options.url.password = "sesame";
  EXPECT_TRUE(RedisStateStore::Open(options, schema_, kRun).ok());
  options.url.user = "default";
  EXPECT_TRUE(RedisStateStore::Open(options, schema_, kRun).ok());
  options.url.user = "nobody";
  EXPECT_FALSE(RedisStateStore::Open(options, schema_, kRun).ok());
}

TEST_F(RedisStateStoreTest, ARefusedWriteSaysWhyAndWorksOnceRedisAcceptsIt) {
  const auto store = Open();
  server_->Tell({"CONFIG", "SET", "min-replicas-to-write", "1"});
  EXPECT_EQ(store->Put(Version(7, 1, 3), state_.views()).code(),
            absl::StatusCode::kFailedPrecondition);
  server_->Tell({"CONFIG", "SET", "min-replicas-to-write", "0"});
  EXPECT_TRUE(store->Put(Version(7, 1, 3), state_.views()).ok());
}

TEST_F(RedisStateStoreTest, LargeStatesTravelInPieces) {
  const StateSchema large = {ParameterLayout::Scalars("personal", 700000, DType::kF32)};
  const TestState state(large, 2);
  const auto store = *RedisStateStore::Open(server_->options(), large, kRun);
  ASSERT_TRUE(store->Put(Version(7, 1, 3), state.views()).ok());
  EXPECT_TRUE(state.Equals(*store->Get(Version(7, 1, 3))));
  const std::vector<Attempt> gone = {Version(7, 1, 3)};
  ASSERT_TRUE(store->Delete(gone).ok());
  RedisPool pool(server_->options());
  const RedisCommand size[] = {{"DBSIZE"}};
  EXPECT_TRUE(pool.Call(size).ok());
  EXPECT_EQ(store->Get(Version(7, 1, 3)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RedisStateStoreTest, RunsInOneRedisDoNotSeeEachOther) {
  const auto mine = Open();
  const auto other = *RedisStateStore::Open(server_->options(), schema_, DigestOf("another"));
  ASSERT_TRUE(mine->Put(Version(7, 1, 3), state_.views()).ok());
  EXPECT_EQ(other->Get(Version(7, 1, 3)).status().code(), absl::StatusCode::kNotFound);
  int listed = 0;
  ASSERT_TRUE(other->ForEach([&](const Attempt&) { ++listed; }).ok());
  EXPECT_EQ(listed, 0);
}

TEST(RedisUrl, IsReadInAllItsForms) {
  EXPECT_EQ(ParseRedisUrl("unix:/run/redis")->socket, "/run/redis");
  const auto hidden = ParseRedisUrl("unix://:pa:ss@/run/redis");
  EXPECT_EQ(hidden->socket, "/run/redis");
  EXPECT_EQ(hidden->password, "pa:ss");
  const auto full = ParseRedisUrl("redis://user:p@ss@store.example:7000/3");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->host, "store.example");
  EXPECT_EQ(full->port, 7000);
  EXPECT_EQ(full->user, "user");
  EXPECT_EQ(full->password, "p@ss");
  EXPECT_EQ(full->database, 3u);
  EXPECT_EQ(full->Text(), "redis://store.example:7000/3");
  EXPECT_EQ(ParseRedisUrl("redis://localhost")->port, 6379);
  for (const char* bad : {"", "unix:relative", "http://x", "redis://", "redis://h:0",
                          "redis://h:99999", "redis://h/x", "redis://secret@:1"}) {
    const absl::Status status = ParseRedisUrl(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
}

TEST(RedisUrl, IsShownAndKeptWithoutItsPassword) {
  for (const auto& [url, shown, password] :
       {std::tuple("redis://:pa:ss@host:1/2", "redis://host:1/2", "pa:ss"),
        std::tuple("redis://me:p@ss@host", "redis://me:@host", "p@ss"),
        std::tuple("redis://secret@host", "redis://host", "secret"),
        std::tuple("unix://:secret@/run/redis", "unix:///run/redis", "secret"),
        std::tuple("unix:/run/a@b", "unix:/run/a@b", ""), std::tuple("spawn", "spawn", ""),
        std::tuple("redis://me:@host", "redis://me:@host", "")}) {
    EXPECT_EQ(WithoutPassword(url), shown);
    EXPECT_EQ(PasswordIn(url), password);
    if (std::string(url) == "spawn") continue;
    const auto with = ParseRedisUrl(url), without = ParseRedisUrl(shown);
    ASSERT_TRUE(with.ok() && without.ok()) << url;
    EXPECT_EQ(with->password, password);
    EXPECT_EQ(without->password, "");
    EXPECT_EQ(with->Text(), without->Text());
    EXPECT_EQ(with->user, without->user);
  }
}

}  // namespace
}  // namespace macaw::state
