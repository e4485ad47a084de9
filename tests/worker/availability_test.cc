#include "worker/availability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "core/fd.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

// When a node's owner lets it work.
namespace macaw::worker {
namespace {

using macaw::testing_support::TemporaryFolder;
using testing::HasSubstr;
using testing::IsEmpty;

// Two hours east of UTC.
const absl::TimeZone kZone = absl::FixedTimeZone(2 * 60 * 60);

absl::Time At(int day, int hour, int minute = 0) {
  return absl::FromCivil(absl::CivilMinute(2026, 11, day, hour, minute), kZone);
}

// A node whose clock and traffic the test sets.
class AvailabilityTest : public testing::Test {
 protected:
  std::unique_ptr<Availability> Open(const AcceptConfig& accept) {
    Availability::World world{
        .now = [this] { return now_; }, .zone = kZone, .traffic = [this] { return moved_; }};
    if (ask_) world.ask = ask_;
    auto availability = Availability::Open(accept, folder_ / "phone.traffic", std::move(world));
    EXPECT_TRUE(availability.ok()) << availability.status();
    return *std::move(availability);
  }

  const TemporaryFolder folder_;
  absl::Time now_ = At(23, 12);
  fleet::Traffic moved_;
  OwnersAnswer::Ask ask_;
};

TEST(Hours, AreReadFromOneTimeToAnother) {
  EXPECT_EQ(*ParseHours("22:00-06:00"), (Hours{.begin = 22 * 60, .end = 6 * 60}));
  EXPECT_EQ(*ParseHours(" 09:30 - 24:00"), (Hours{.begin = 9 * 60 + 30, .end = 24 * 60}));
  for (const char* wrong : {"", "22:00", "22-6", "22:00-22:00", "25:00-06:00", "22:60-06:00",
                            "24:00-06:00", "22:00-06:0x", "2:00-06:00"}) {
    EXPECT_FALSE(ParseHours(wrong).ok()) << wrong;
  }
}

TEST_F(AvailabilityTest, WithoutConditionsItMayAlwaysWork) {
  EXPECT_TRUE(Open({})->Now().available());
}

TEST_F(AvailabilityTest, HoursGoOverMidnightOnTheNodesOwnClock) {
  const auto availability = Open({.hours = {"22:00-06:00"}});
  now_ = At(23, 21, 59);
  EXPECT_THAT(availability->Now().declined, HasSubstr("22:00-06:00 (accept.hours)"));
  for (const absl::Time inside : {At(23, 22), At(23, 23, 59), At(24, 0), At(24, 5, 59)}) {
    now_ = inside;
    EXPECT_TRUE(availability->Now().available()) << absl::FormatTime(inside, kZone);
  }
  now_ = At(24, 6);
  EXPECT_FALSE(availability->Now().available());
}

TEST_F(AvailabilityTest, OutsideTheHoursItAsksAgainWhenTheNextOnesBegin) {
  const auto availability = Open({.hours = {"22:00-06:00", "12:30-13:00"}});
  now_ = At(23, 12);
  EXPECT_EQ(availability->Now().ask_again, std::chrono::minutes(30));
  now_ = At(23, 13);
  EXPECT_EQ(availability->Now().ask_again, std::chrono::hours(9));
  EXPECT_EQ(NextBegin({{.begin = 60, .end = 120}}, At(23, 2), kZone), At(24, 1));
}

TEST_F(AvailabilityTest, WhatWasMovedTodayCountsAfterARestart) {
  const AcceptConfig accept{.max_bytes_up_a_day = 1000};
  {
    const auto before = Open(accept);
    moved_ = {.up = 900, .down = 5000};
    EXPECT_TRUE(before->Now().available());
  }
  moved_ = {};  // of the new process
  const auto after = Open(accept);
  moved_ = {.up = 100};
  EXPECT_TRUE(after->Now().available());
  moved_ = {.up = 101};
  const Availability::Answer answer = after->Now();
  EXPECT_THAT(answer.declined, HasSubstr("accept.max_bytes_up_a_day"));
  EXPECT_EQ(answer.ask_again, std::chrono::hours(12)) << "at midnight";
  now_ = At(24, 0);
  EXPECT_TRUE(after->Now().available());
  moved_ = {.up = 1101};
  EXPECT_TRUE(after->Now().available());
  moved_ = {.up = 1102};
  EXPECT_FALSE(after->Now().available());
}

TEST_F(AvailabilityTest, AClockThatVisitsAnotherDayForgetsNothing) {
  const auto availability = Open({.max_bytes_up_a_day = 1000});
  moved_ = {.up = 900};
  EXPECT_TRUE(availability->Now().available());
  now_ = At(22, 12);  // somebody sets the clock wrong
  moved_ = {.up = 950};
  EXPECT_TRUE(availability->Now().available());
  now_ = At(23, 13);
  moved_ = {.up = 1001};
  EXPECT_FALSE(availability->Now().available());
  now_ = At(24, 0);
  EXPECT_TRUE(availability->Now().available());
}

TEST_F(AvailabilityTest, AClockThatWasFarAheadIsForgotten) {
  const auto availability = Open({.max_bytes_up_a_day = 1000});
  now_ = At(23, 12) + absl::Hours(24 * 365 * 12);
  moved_ = {.up = 900};
  EXPECT_TRUE(availability->Now().available());
  now_ = At(23, 12);
  moved_ = {.up = 1800};
  EXPECT_TRUE(availability->Now().available());
  now_ = At(24, 12);
  moved_ = {.up = 2700};
  EXPECT_TRUE(availability->Now().available());
}

TEST_F(AvailabilityTest, WorkThatWouldGoBeyondTheLimitIsNotBegun) {
  const auto availability = Open({.max_bytes_up_a_day = 1000, .max_bytes_down_a_day = 500});
  availability->Expect({.up = 600, .down = 100});
  EXPECT_TRUE(availability->Now().available());
  moved_ = {.up = 400, .down = 400};
  EXPECT_TRUE(availability->Now().available());
  moved_ = {.up = 400, .down = 401};
  EXPECT_THAT(availability->Now().declined, HasSubstr("accept.max_bytes_down_a_day"));
  moved_ = {.up = 401, .down = 401};
  EXPECT_THAT(availability->Now().declined, HasSubstr("accept.max_bytes_up_a_day"));
}

TEST_F(AvailabilityTest, ALimitOfBytesNeedsAFolder) {
  const auto availability = Availability::Open({.max_bytes_down_a_day = 1}, "", {});
  EXPECT_TRUE(absl::IsInvalidArgument(availability.status()));
  EXPECT_THAT(availability.status().message(), HasSubstr("--scratch"));
}

TEST_F(AvailabilityTest, TheCommandsAnswerHoldsUntilItIsAskedAgain) {
  std::atomic<int> asked = 0;
  ask_ = [&] {
    ++asked;
    return std::string("accept.run_when says no (exit code 1)");
  };
  const auto availability = Open({.run_when = {"idle"}, .run_when_every = 3600});
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(availability->Now().declined, HasSubstr("accept.run_when"));
  }
  EXPECT_EQ(availability->Now().ask_again, std::chrono::hours(1));
  EXPECT_EQ(asked, 1);
}

TEST_F(AvailabilityTest, TheCommandIsAskedAgainByItself) {
  absl::Notification third;
  std::atomic<int> asked = 0;
  ask_ = [&]() -> std::string {
    if (++asked == 4) third.Notify();
    return asked < 3 ? "no" : "";
  };
  const auto availability = Open({.run_when = {"idle"}, .run_when_every = 0.001});
  third.WaitForNotification();
  EXPECT_TRUE(availability->Now().available());
}

TEST(OwnersCommand, ItsExitCodeSaysWhetherTheNodeMayWork) {
  const auto ask = [](const std::vector<std::string>& command) {
    return AskOwnersCommand(command, kOwnersCommandLimit);
  };
  EXPECT_THAT(ask({"true"}), IsEmpty());
  EXPECT_EQ(ask({"sh", "-c", "exit 7"}), "accept.run_when says no (exit code 7)");
  EXPECT_THAT(ask({"sh", "-c", "kill -9 $$"}), HasSubstr("killed by signal 9"));
  // Neither names nor words of the owner's programs.
  EXPECT_EQ(ask({"/no/such/program"}), "accept.run_when could not be run");
  // There is no shell.
  EXPECT_EQ(ask({"test", "$HOME", "=", "*"}), "accept.run_when says no (exit code 1)");
}

TEST(OwnersCommand, OneThatDoesNotAnswerIsKilledWithAllThatItStarted) {
  const TemporaryFolder folder;
  const std::string file = folder / "child";
  const std::string answer = AskOwnersCommand(
      {"sh", "-c", absl::StrCat("sleep 1000 & echo $! > ", file, "; wait")}, FromSeconds(0.5));
  EXPECT_EQ(answer, "accept.run_when did not answer within 0.5 s");
  const absl::StatusOr<std::string> text = ReadFile(file);
  int child = 0;
  // On a machine so busy that the shell did not get so far, there is nothing to look for.
  if (!text.ok() || !absl::SimpleAtoi(*text, &child)) return;
  const Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd ended{fd.get(), POLLIN, 0};
  EXPECT_TRUE(!fd.open() || ::poll(&ended, 1, /*timeout in ms=*/60'000) == 1);
}

}  // namespace
}  // namespace macaw::worker
