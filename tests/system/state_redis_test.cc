// Client states in a real Redis that dies, comes back empty, is full, hangs or wants a password:
// the run goes on with the bytes of an undisturbed one, or stops and says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/state/redis_server.h"
#include "tests/system/state_runs.h"

namespace macaw {
namespace {

using state::RedisServer;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::Plus;
using testing_support::ResumeWithoutPauses;
using testing_support::RoundDone;
using testing_support::Simulation;
using testing_support::SlowerStateful;
using testing_support::Slurp;
using testing_support::StateBytes;
using testing_support::StateBytesOf;
using testing_support::StateBytesWithoutPauses;
using testing_support::WaitAMoment;
using testing_support::WaitForLog;

class RedisFault : public testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::Available()) GTEST_SKIP() << "/usr/bin/redis-server is not installed";
  }
  // Nothing is kept in the workers' memory, so that every read asks Redis.
  std::vector<std::string> On(const std::string& url, const std::vector<std::string>& more = {}) {
    return Plus(Plus(disk_, {"--processes", "2", "--slots", "1", "--set", "state.store=redis",
                             "--set", "state.cache_mb=0", "--set", "state.url=" + url}),
                more);
  }
  void ExpectUndisturbed(const Simulation& simulation) {
    EXPECT_EQ(StateBytesOf(simulation), StateBytesWithoutPauses(disk_));
  }

  const std::vector<std::string> disk_ = SlowerStateful("scaffold", "20");
};

TEST_F(RedisFault, ARunsOwnRedisThatIsKilledMidRoundIsStartedAgainAndNothingIsLost) {
  Simulation simulation("killed", On("spawn"));
  RandomStream random({.seed = 3});
  int killed = 0;
  for (int round = 1; round <= 5; ++round) {
    if (!simulation.WaitForANewRound()) break;
    WaitAMoment(random);
    for (const pid_t redis : simulation.Children("redis-server"))
      killed += ::kill(redis, SIGKILL) == 0 ? 1 : 0;
  }
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_GE(killed, 3);
  EXPECT_THAT(simulation.output(), HasSubstr("redis-server died (killed by signal 9"));
  ExpectUndisturbed(simulation);
}

TEST_F(RedisFault, ARedisThatIsKilledMidRoundAndStartedAgainByOthersLosesNothing) {
  RedisServer server;
  Simulation simulation("killed", On(server.url()));
  RandomStream random({.seed = 4});
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(simulation.WaitForANewRound());
    WaitAMoment(random);
    server.Kill();
    server.Start();
  }
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  ExpectUndisturbed(simulation);
}

TEST_F(RedisFault, OneThatComesBackEmptyStopsTheRunAndStartsNobodyAfresh) {
  RedisServer server;
  Simulation simulation("emptied", On(server.url(), {"--set", "cohort.size=40"}));
  ASSERT_TRUE(simulation.WaitForEvent(RoundDone(2)));
  server.Kill();
  server.Forget();
  server.Start();
  EXPECT_EQ(simulation.Wait(), 1);
  EXPECT_THAT(simulation.output(),
              AllOf(HasSubstr("the state of client "), HasSubstr("not in the store"),
                    HasSubstr("rather than start the client afresh"), HasSubstr("--state-reset")));
  EXPECT_EQ(simulation.digest(), "") << "it left a result";
}

TEST_F(RedisFault, OneOutOfMemoryStopsTheRunWhichGoesOnOnceThereIsRoom) {
  RedisServer server;
  Simulation simulation("full", On(server.url()));
  ASSERT_TRUE(simulation.WaitForEvent(RoundDone(2)));
  server.Tell({"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_EQ(simulation.Wait(), 1);
  EXPECT_THAT(simulation.output(), AllOf(HasSubstr("OOM"), HasSubstr("--resume")));
  server.Tell({"CONFIG", "SET", "maxmemory", "0"});
  Simulation resumed("resumed", ResumeWithoutPauses(simulation));
  ASSERT_EQ(resumed.Wait(), 0) << resumed.output();
  ExpectUndisturbed(resumed);
}

TEST_F(RedisFault, OneThatHangsIsWaitedForWithAWord) {
  RedisServer server;
  Simulation simulation("hung", On(server.url()));
  ASSERT_TRUE(simulation.WaitForEvent(RoundDone(2)));
  server.Signal(SIGSTOP);
  EXPECT_TRUE(WaitForLog(simulation, "redis_does_not_answer"));
  EXPECT_TRUE(simulation.running());
  server.Signal(SIGCONT);
  ASSERT_EQ(simulation.Wait(), 0) << simulation.output();
  EXPECT_TRUE(WaitForLog(simulation, "redis_answers_again"));
  ExpectUndisturbed(simulation);
}

TEST_F(RedisFault, APasswordIsInNoFileAndAskedForAgain) {
  const std::string password = "open-sesame";
  const RedisServer server({"--requirepass", password});
  const std::string socket = server.socket();
  Simulation first("first", On("unix://:" + password + "@" + socket));
  ASSERT_TRUE(first.WaitForEvent(RoundDone(2)));
  first.Signal(SIGINT);
  ASSERT_EQ(first.Wait(), 130) << first.output();

  Simulation without("without", {"--resume", first.folder()});
  EXPECT_EQ(without.Wait(), 1);
  EXPECT_THAT(without.output(), HasSubstr("MACAW_REDIS_PASSWORD"));

  ::setenv("MACAW_REDIS_PASSWORD", password.c_str(), 1);
  Simulation second("second", ResumeWithoutPauses(first));
  const int end = second.Wait();
  ::unsetenv("MACAW_REDIS_PASSWORD");
  ASSERT_EQ(end, 0) << second.output();
  ExpectUndisturbed(second);

  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(first.folder())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_THAT(Slurp(entry.path().string()), Not(HasSubstr(password))) << entry.path();
  }
  EXPECT_GE(files, 5);
  EXPECT_THAT(first.output() + without.output() + second.output(), Not(HasSubstr(password)));
  EXPECT_THAT(Slurp(first.folder() + "/config.toml"), HasSubstr("unix://" + socket));
}

TEST_F(RedisFault, AUrlThatIsNoneIsRefusedBeforeAnythingStarts) {
  Simulation simulation("bad", On("http://host"));
  EXPECT_EQ(simulation.Wait(), 2);
  EXPECT_THAT(simulation.output(), HasSubstr("state.url"));
  EXPECT_FALSE(std::filesystem::exists(simulation.folder()));
}

TEST_F(RedisFault, AUrlWhereNobodyAnswersIsSaidBeforeAnythingStarts) {
  Simulation simulation("nobody", On("unix:/nowhere/redis.sock"));
  EXPECT_EQ(simulation.Wait(), 1);
  EXPECT_THAT(simulation.output(),
              HasSubstr("state.url: unix:/nowhere/redis.sock has not answered"));
  EXPECT_FALSE(std::filesystem::exists(simulation.folder()));
}

}  // namespace
}  // namespace macaw
