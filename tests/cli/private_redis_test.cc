#include "cli/simulate/private_redis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/simulate/redis_files.h"
#include "core/clock.h"
#include "testing/temporary_folder.h"

#ifdef MACAW_REDIS
#include "state/redis_store.h"
#endif

namespace macaw::cli {
namespace {

using testing::HasSubstr;

// As it stands in an append-only file.
std::string Set(const std::string& key, const std::string& value) {
  return absl::StrCat("*3\r\n$3\r\nSET\r\n$", key.size(), "\r\n", key, "\r\n$", value.size(),
                      "\r\n", value, "\r\n");
}

class PrivateRedisTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::access("/usr/bin/redis-server", X_OK) != 0)
      GTEST_SKIP() << "/usr/bin/redis-server is not installed";
    ::signal(SIGPIPE, SIG_IGN);
    std::filesystem::create_directories(folder_ / "logs");
  }
  // What the supervisor does: waits until there is something to do, and has it done.
  absl::Status Attend(PrivateRedis& redis) {
    pollfd fd{.fd = redis.fd(), .events = POLLIN};
    EXPECT_EQ(::poll(&fd, 1, 60'000), 1);
    return redis.Attend([this](const std::string& message) { said_.push_back(message); });
  }

  const testing_support::TemporaryFolder folder_;
  std::vector<std::string> said_;
};

#ifdef MACAW_REDIS
TEST_F(PrivateRedisTest, StartsAgainOnItsDataWheneverItDies) {
  auto redis = PrivateRedis::Start(folder_.path());
  ASSERT_TRUE(redis.ok()) << redis.status();
  const state::RedisUrl url = *state::ParseRedisUrl(redis->url());
  const LayoutPtr layout = ParameterLayout::Scalars("control", 1000, DType::kF32);
  const FlatVector vector(layout);
  const ConstVectorView views[] = {vector.view()};
  const auto store = state::RedisStateStore::Open({.url = url}, {layout}, DigestOf("a run"));
  ASSERT_TRUE(store.ok()) << store.status();
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE((*store)->Put({ClientId(i), {1, i}}, views).ok());
    state::RedisPool impatient({.url = url, .patience = Duration(0)});
    const state::RedisCommand die[] = {{"SHUTDOWN", "NOSAVE", "NOW", "FORCE"}};
    EXPECT_FALSE(impatient.Call(die).ok()) << "nobody is left to answer";
    ASSERT_TRUE(Attend(*redis).ok());  // it has died
    ASSERT_TRUE(Attend(*redis).ok());  // the pause is over
    for (uint64_t client = 1; client <= i; ++client)
      EXPECT_TRUE((*store)->Get({ClientId(client), {1, client}}).ok());
  }
  EXPECT_EQ(said_.size(), 3u);
  EXPECT_THAT(said_[0], HasSubstr("starting it again"));
}
#endif

#ifdef MACAW_REDIS
// What a full disk leaves: a command half written in a file behind which Redis has begun the next.
TEST_F(PrivateRedisTest, ReadsItsDataWhenAnEarlierFileEndsInTheMiddleOfACommand) {
  const std::string manifest =
      "file appendonly.aof.1.incr.aof seq 1 type i\nfile appendonly.aof.2.incr.aof seq 2 type i\n";
  folder_.Write("state/appendonlydir/appendonly.aof.manifest", manifest);
  const std::string torn = folder_.Write("state/appendonlydir/appendonly.aof.1.incr.aof",
                                         Set("one", "1") + Set("two", "22222").substr(0, 30));
  folder_.Write("state/appendonlydir/appendonly.aof.2.incr.aof", Set("three", "333"));
  auto redis = PrivateRedis::Start(folder_.path());
  ASSERT_TRUE(redis.ok()) << redis.status();
  state::RedisPool pool({.url = *state::ParseRedisUrl(redis->url())});
  const state::RedisCommand rename[] = {{"RENAME", "one", "1"}, {"RENAME", "three", "3"}};
  EXPECT_TRUE(pool.Call(rename).ok()) << "both keys are there";
  const state::RedisCommand half[] = {{"RENAME", "two", "2"}};
  EXPECT_THAT(std::string(pool.Call(half).status().message()), HasSubstr("no such key"));
  EXPECT_EQ(std::filesystem::file_size(torn), Set("one", "1").size());
}
#endif

TEST_F(PrivateRedisTest, RemovesWhatAKilledOneWasStillWritingAside) {
  const std::string aside[] = {folder_.Write("state/temp-rewriteaof-17.aof", "half"),
                               folder_.Write("state/temp-rewriteaof-bg-17.aof", "half"),
                               folder_.Write("state/temp-17.rdb", "half")};
  const std::string other = folder_.Write("state/temperatures.txt", "a person's");
  ASSERT_TRUE(PrivateRedis::Start(folder_.path()).ok());
  for (const std::string& path : aside) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  EXPECT_TRUE(std::filesystem::exists(other));
}

TEST_F(PrivateRedisTest, LeavesNothingHalfWrittenBehindWhenItEnds) {
  std::string aside;
  {
    const auto redis = PrivateRedis::Start(folder_.path());
    ASSERT_TRUE(redis.ok()) << redis.status();
    aside = folder_.Write("state/temp-rewriteaof-17.aof", "half");
  }
  EXPECT_FALSE(std::filesystem::exists(aside));
}

TEST(RedisFiles, CutOnlyACommandThatTheEndOfTheFileHalves) {
  const std::string whole = Set("key", std::string("\r\n*3\r\n\0", 8)) + Set("k", "");
  EXPECT_EQ(WholeCommands(""), 0u);
  EXPECT_EQ(WholeCommands(whole), whole.size());
  const std::string next = Set("another", "value");
  for (size_t size = 1; size < next.size(); ++size)
    EXPECT_EQ(WholeCommands(whole + next.substr(0, size)), whole.size()) << size;
  const std::string damaged = whole + "no command at all, and longer than a count" + next;
  EXPECT_EQ(WholeCommands(damaged), damaged.size()) << "that is for Redis to speak of";
}

TEST_F(PrivateRedisTest, OneThatCannotReadItsDataIsGivenUpWithItsWords) {
  folder_.Write("state/appendonlydir/appendonly.aof.manifest", "this is no manifest\n");
  auto redis = PrivateRedis::Start(folder_.path());
  ASSERT_TRUE(redis.ok()) << redis.status();
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = Attend(*redis);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("redis.log"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("died 6 times"));
}

}  // namespace
}  // namespace macaw::cli
