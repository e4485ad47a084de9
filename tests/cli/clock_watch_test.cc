#include "cli/process/clock_watch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

namespace macaw::cli {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

class SetBackTest : public testing::Test {
 protected:
  // What a look sees `steady` after the first one, when the wall clock shows `wall` more than then.
  Duration Look(Duration steady, absl::Duration wall) {
    return set_back_.Look(TimePoint(hours(100)) + steady, absl::FromUnixSeconds(1'000'000) + wall);
  }
  SetBack set_back_;
};

TEST_F(SetBackTest, IsNothingWhileBothClocksGoOnOrTheWallClockIsSetForward) {
  EXPECT_EQ(Look({}, {}), Duration{});
  EXPECT_EQ(Look(seconds(1), absl::Seconds(1)), Duration{});
  EXPECT_EQ(Look(seconds(2), absl::Hours(960)), Duration{});
  EXPECT_EQ(Look(seconds(3), absl::Hours(960) + absl::Seconds(1)), Duration{});
}

TEST_F(SetBackTest, IsWhatTheWallClockLostSinceTheLastLook) {
  Look({}, absl::Hours(960));
  EXPECT_EQ(Look(seconds(1), absl::Seconds(1)), hours(960));
  EXPECT_EQ(Look(seconds(2), absl::Seconds(2)), Duration{}) << "it is told once";
  EXPECT_EQ(Look(seconds(4), absl::Seconds(3)), seconds(1));
}

TEST(StartAgainDeathTest, ReplacesTheProgramWithAllItsThreadsAndBlockedSignals) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        std::thread([] {
          char program[] = "cli_test", list[] = "--gtest_list_tests";
          char* const arguments[] = {program, list, nullptr};
          StartAgain(arguments);
        }).join();
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace macaw::cli
