#include "cli/simulate/private_redis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/clock.h"
#include "tests/support/temporary_folder.h"

#ifdef MACAW_REDIS
#include "state/redis_store.h"
#endif

namespace macaw::cli {
namespace {

using testing::HasSubstr;

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
