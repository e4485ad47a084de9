#include "worker/outage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/fake_clock.h"

namespace macaw::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class OutageTest : public testing::Test {
 protected:
  testing_support::FakeClock clock_;
  std::vector<std::string> told_;
  Outage outage_{clock_, [this](const std::string& line) { told_.push_back(line); }};
};

TEST_F(OutageTest, IsToldWithItsReasonThenEverMoreSeldomAndOnceWhenItIsOver) {
  for (int second = 0; second < 100; ++second) {
    outage_.NoAnswer(absl::UnavailableError("connection refused"));
    clock_.Advance(std::chrono::seconds(1));
  }
  EXPECT_THAT(
      told_, ElementsAre(HasSubstr("server_lost"), HasSubstr("still_lost seconds=10 "),
                         HasSubstr("still_lost seconds=30 "), HasSubstr("still_lost seconds=70 ")));
  for (const std::string& line : told_) EXPECT_THAT(line, HasSubstr("connection refused"));
  told_.clear();
  outage_.Answered();
  outage_.Answered();
  EXPECT_THAT(told_, ElementsAre(HasSubstr("server_back seconds=100")));
}

TEST_F(OutageTest, IsToldEveryHourWhenItLastsForDays) {
  for (int hour = 0; hour < 48; ++hour) {
    clock_.Advance(std::chrono::hours(1));
    outage_.NoAnswer(absl::UnavailableError("the certificate of the server has expired"));
  }
  EXPECT_EQ(told_.size(), 48u);
}

TEST_F(OutageTest, ThatNeverBeganIsNotTold) {
  outage_.Answered();
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace macaw::worker
