#include "cli/simulate/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "testing/fake_clock.h"

namespace macaw::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::FakeClock;

class ProgressTest : public ::testing::Test {
 protected:
  Progress Make(ProgressOptions options) {
    return Progress(options, clock_,
                    [this](absl::string_view text) { absl::StrAppend(&shown_, text); });
  }
  static std::string Row(int round, const std::string& more = "") {
    return absl::StrCat(R"({"round":)", round, R"(,"train_loss":0.5)", more, "}");
  }
  // What has been shown since the last call.
  std::string Take() { return std::exchange(shown_, ""); }

  FakeClock clock_;
  std::string shown_;
};

TEST_F(ProgressTest, SaysEverythingInOneLine) {
  Progress progress = Make({.rounds = 200, .cohort = 100});
  progress.OnRow(Row(1));
  EXPECT_EQ(progress.Line(), "round 1/200  loss 0.5000");
  clock_.Advance(FromSeconds(2));
  progress.OnRow(Row(11, R"(,"test_accuracy":0.9125)"));
  EXPECT_EQ(progress.Line(),
            "round 11/200  loss 0.5000  accuracy 0.9125  5.00 rounds/s  500 clients/s  ETA 0:38");
}

TEST_F(ProgressTest, ShowsARoundOnceThatAServerStartedAgainRepeats) {
  Progress progress = Make({.rounds = 5});
  EXPECT_TRUE(progress.OnRow(Row(1)));
  EXPECT_TRUE(progress.OnRow(Row(2, R"(,"test_accuracy":0.25)")));
  const std::string before = progress.Line();
  EXPECT_FALSE(progress.OnRow(Row(1)));
  EXPECT_FALSE(progress.OnRow(Row(2)));
  EXPECT_EQ(progress.Line(), before);
  EXPECT_TRUE(progress.OnRow(Row(3)));
}

TEST_F(ProgressTest, KeepsTheLastAccuracyBetweenEvaluations) {
  Progress progress = Make({.rounds = 5});
  progress.OnRow(Row(1, R"(,"test_accuracy":0.25)"));
  progress.OnRow(Row(2));
  EXPECT_THAT(progress.Line(), HasSubstr("accuracy 0.2500"));
}

TEST_F(ProgressTest, WritesAboutOnePlainLineASecondAndAlwaysTheLast) {
  Progress progress = Make({.rounds = 100});
  for (int round = 1; round <= 99; ++round) {
    progress.OnRow(Row(round));
    clock_.Advance(FromSeconds(0.05));
  }
  const std::string text = Take();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  progress.OnRow(Row(100));
  EXPECT_THAT(Take(), HasSubstr("round 100/100"));
  progress.Finish();
  EXPECT_EQ(Take(), "");
}

TEST_F(ProgressTest, ShowsTheNewestRowWhenARunEndsEarly) {
  Progress progress = Make({.rounds = 100});
  progress.OnRow(Row(1));
  progress.OnRow(Row(2));
  Take();
  progress.Finish();
  EXPECT_THAT(Take(), HasSubstr("round 2/100"));
}

TEST_F(ProgressTest, RedrawsOneLineOnATerminal) {
  Progress progress = Make({.terminal = true, .rounds = 9});
  progress.OnRow(Row(1));
  EXPECT_EQ(Take(), "\rround 1/9  loss 0.5000\x1b[K");
  progress.Say("worker-0 died");
  EXPECT_EQ(Take(), "\r\x1b[Kworker-0 died\n\rround 1/9  loss 0.5000\x1b[K");
  progress.Finish();
  EXPECT_EQ(Take(), "\n");
}

TEST_F(ProgressTest, FollowsAWindowThatIsMadeNarrowerAndWider) {
  size_t width = 100;
  Progress progress = Make({.terminal = true, .width = [&] { return width; }, .rounds = 900});
  const auto show = [&](int round) {
    clock_.Advance(FromSeconds(1));
    progress.OnRow(Row(round, R"(,"test_accuracy":0.25)"));
    return Take();
  };
  show(1);
  EXPECT_EQ(show(2), "\rround 2/900  loss 0.5000  accuracy 0.2500  1.00 rounds/s  ETA 14:58\x1b[K");
  width = 50;
  EXPECT_EQ(show(3), "\rround 3/900  accuracy 0.2500  ETA 14:57\x1b[K");
  width = 100;
  EXPECT_EQ(show(4), "\rround 4/900  loss 0.5000  accuracy 0.2500  1.00 rounds/s  ETA 14:56\x1b[K");
}

TEST_F(ProgressTest, NeverReachesTheEdgeOfAWindow) {
  size_t width = 0;
  Progress progress =
      Make({.terminal = true, .width = [&] { return width; }, .rounds = 900, .cohort = 10});
  for (; width < 100; ++width) {
    clock_.Advance(FromSeconds(1));
    progress.OnRow(Row(static_cast<int>(width) + 1, R"(,"test_accuracy":0.25)"));
    const std::string text = Take();
    const size_t columns = text.size() - std::string("\r\x1b[K").size();
    EXPECT_TRUE(columns < width || columns == 0) << width << ": " << text;
  }
}

TEST_F(ProgressTest, TakesItsRateFromTheLastSeconds) {
  Progress progress = Make({.rounds = 10000});
  for (int round = 1; round <= 20; ++round) {  // slow at first: a round in ten seconds
    progress.OnRow(Row(round));
    clock_.Advance(FromSeconds(10));
  }
  for (int round = 21; round <= 420; ++round) {  // then ten a second
    progress.OnRow(Row(round));
    clock_.Advance(FromSeconds(0.1));
  }
  EXPECT_THAT(progress.Line(), HasSubstr("10.0 rounds/s"));
}

TEST_F(ProgressTest, IsSilentWhenQuietButPassesMessagesOn) {
  Progress progress = Make({.quiet = true, .rounds = 2});
  progress.OnRow(Row(1));
  progress.Say("worker-0 died");
  progress.Finish();
  EXPECT_EQ(Take(), "worker-0 died\n");
}

TEST_F(ProgressTest, IgnoresWhatIsNotARow) {
  Progress progress = Make({.rounds = 2});
  for (const char* text : {"", "nonsense", "[1]", "{}", R"({"round":"x"})", R"({"round":-1})"})
    progress.OnRow(text);
  EXPECT_EQ(Take(), "");
}

TEST(ClockText, ShowsHoursOnlyWhereThereAreAny) {
  EXPECT_EQ(ClockText(7.4), "0:07");
  EXPECT_EQ(ClockText(754), "12:34");
  EXPECT_EQ(ClockText(11045), "3:04:05");
}

TEST_F(ProgressTest, CountsTheClientsThatWereLeftOut) {
  Progress progress = Make({.rounds = 9});
  progress.OnRow(Row(1, R"(,"left_out":0)"));
  EXPECT_THAT(progress.Line(), Not(HasSubstr("left out")));
  progress.OnRow(Row(2, R"(,"left_out":2)"));
  progress.OnRow(Row(3, R"(,"left_out":5,"test_accuracy":0.5)"));
  progress.OnRow(Row(3, R"(,"left_out":5)"));  // repeated by a server that was started again
  EXPECT_EQ(progress.Line(), "round 3/9  loss 0.5000  accuracy 0.5000  7 left out");
  EXPECT_EQ(progress.Line(26), "round 3/9  7 left out");
}

}  // namespace
}  // namespace macaw::cli
