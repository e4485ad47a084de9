#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "training/api/schedule.h"

namespace macaw::training {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const char* text) {
  return std::string(ParseSchedule(text).status().message());
}

TEST(ParseSchedule, ReadsEachKind) {
  EXPECT_EQ(ScheduleFactor(*ParseSchedule("constant"), 50), 1);
  EXPECT_EQ(ScheduleFactor(*ParseSchedule("step gamma 0.5 every 3"), 4), 0.5);
  EXPECT_EQ(ScheduleFactor(*ParseSchedule("exponential gamma 0.5"), 3), 0.25);
  EXPECT_NEAR(ScheduleFactor(*ParseSchedule("cosine rounds 11 floor 0.2"), 12), 0.2, 1e-15);
  EXPECT_EQ(ScheduleFactor(*ParseSchedule("  constant   warmup 3 "), 1), 0.25);
}

TEST(ParseSchedule, SaysWhichWordIsWrongOrMissing) {
  EXPECT_THAT(Refusal(""), HasSubstr("begins with"));
  EXPECT_THAT(Refusal("linear"), HasSubstr("begins with"));
  EXPECT_THAT(Refusal("step gamma 0.5"), HasSubstr("'every' is missing"));
  EXPECT_THAT(Refusal("cosine floor 0.1"), HasSubstr("'rounds' is missing"));
  EXPECT_THAT(Refusal("exponential gamma 0.5 floor 0.1"), HasSubstr("'floor' is not a word"));
  EXPECT_THAT(Refusal("exponential gamma 0.5 gamma 0.5"), HasSubstr("'gamma' is there twice"));
  EXPECT_THAT(Refusal("constant warmup 2 warmup 2"), HasSubstr("'warmup' is there twice"));
  EXPECT_THAT(Refusal("exponential gamma"), HasSubstr("needs a number"));
  EXPECT_THAT(Refusal("exponential gamma -1"), HasSubstr("needs a number"));
  EXPECT_THAT(Refusal("step gamma 0 every 1"), HasSubstr("'gamma' needs a number above 0"));
  EXPECT_THAT(Refusal("cosine rounds 5 floor 3"), HasSubstr("'floor' needs a number from 0 to 1"));
  EXPECT_THAT(Refusal("step gamma 0.5 every 0"), HasSubstr("whole number of rounds"));
  EXPECT_THAT(Refusal("cosine rounds 1.5"), HasSubstr("whole number of rounds"));
}

}  // namespace
}  // namespace macaw::training
