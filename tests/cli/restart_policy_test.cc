#include "cli/process/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/child.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;

TimePoint At(double seconds) { return TimePoint{} + FromSeconds(seconds); }

TEST(RestartPolicy, WaitsLongerFromDeathToDeath) {
  RestartPolicy policy;
  std::vector<double> waits;
  for (int i = 0; i < 5; ++i) waits.push_back(ToSeconds(policy.OnDeath(At(100 + i)).value()));
  EXPECT_THAT(waits, ElementsAre(0, 0.1, 0.5, 1, 2));
  EXPECT_EQ(policy.OnDeath(At(105)), std::nullopt);
}

TEST(RestartPolicy, DoesNotGiveUpWhileTheRunMovesOn) {
  RestartPolicy policy;
  for (int i = 0; i < 50; ++i) {
    EXPECT_NE(policy.OnDeath(At(100 + i)), std::nullopt) << i;
    policy.OnProgress(At(100 + i));
  }
}

TEST(RestartPolicy, DoesNotLetAServerWaitThatHasFinishedARoundSince) {
  RestartPolicy server(RestartPolicy::BackOff::kFruitlessDeaths), worker;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(server.OnDeath(At(100 + i)), Duration(0)) << i;
    server.OnProgress(At(100 + i));
    worker.OnProgress(At(100 + i));
    const std::optional<Duration> wait = worker.OnDeath(At(100 + i));
    EXPECT_EQ(wait > Duration(0), i > 0) << i;
  }
  EXPECT_EQ(server.OnDeath(At(119.5)), Duration(0));
  EXPECT_GT(server.OnDeath(At(119.6)), Duration(0)) << "now it has died twice for nothing";
}

TEST(RestartPolicy, ForgetsDeathsOfLongAgo) {
  RestartPolicy policy;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(policy.OnDeath(At(100 + 130 * i)), Duration(0)) << i;
}

TEST(RestartPolicy, GivesUpOnAWorkerThatTakesAMinuteToDie) {
  RestartPolicy policy;
  for (int i = 0; i < 5; ++i) EXPECT_NE(policy.OnDeath(At(100 + 60 * i)), std::nullopt) << i;
  EXPECT_EQ(policy.OnDeath(At(400)), std::nullopt);
}

TEST(LastErrorLine, PrefersAnErrorToWhatCameAfterIt) {
  const testing_support::TemporaryFolder folder;
  const std::string log = folder / "last_error.log";
  ASSERT_TRUE(AtomicWriteFile(log, "one\nx: error: two\nthree\n\n").ok());
  EXPECT_EQ(LastErrorLine(log), "x: error: two");
  EXPECT_EQ(LastErrorLine(log, 4), "x: error: two");
  EXPECT_EQ(LastErrorLine(log, 18), "three") << "what came before is another process's";
  ASSERT_TRUE(AtomicWriteFile(log, "x: error: two\nthree errors in 5 s\n").ok());
  EXPECT_EQ(LastErrorLine(log), "x: error: two");
  for (const char* line :
       {"<3>x: error: a \"b\" in c:\\d",
        R"({"time":"2026-12-01T14:15:53.776+00:00","level":"error",)"
        R"("process":"x","room":"end","message":"x: error: a \"b\" in c:\\d"})"}) {
    ASSERT_TRUE(AtomicWriteFile(log, absl::StrCat(line, "\n")).ok());
    EXPECT_EQ(LastErrorLine(log), "x: error: a \"b\" in c:\\d");
  }
  ASSERT_TRUE(AtomicWriteFile(log, "one\nthree\n\n").ok());
  EXPECT_EQ(LastErrorLine(log), "three");
  EXPECT_EQ(LastErrorLine("/nowhere.log"), "");
}

}  // namespace
}  // namespace macaw::cli
