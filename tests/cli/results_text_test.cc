// How tables show numbers.
#include <gtest/gtest.h>

#include "cli/results/text.h"

namespace macaw::cli {
namespace {

TEST(NumberText, HasFourPlacesWhereTheseSayHowLargeTheNumberIs) {
  EXPECT_EQ(NumberText({.mean = 0.98765}), "0.9877");
  EXPECT_EQ(NumberText({.mean = -0.0012}), "-0.0012");
  EXPECT_EQ(NumberText({.mean = 3}), "3");
  EXPECT_EQ(NumberText({.mean = 0.5, .std = 0.00001}), "0.5000 ± 0.0000");
  EXPECT_EQ(NumberText({.mean = 0, .std = 0.25}), "0.0000 ± 0.2500");
  EXPECT_EQ(NumberText({.mean = 2, .std = 0}), "2 ± 0");
  EXPECT_EQ(NumberText({.mean = 12345678901, .std = 0}), "12345678901 ± 0");
  EXPECT_EQ(NumberText({.mean = 1e20, .std = 0}), "1e+20 ± 0");
}

TEST(NumberText, ShowsSmallNumbersByTheirDigits) {
  EXPECT_EQ(NumberText({.mean = 0.0000123}), "1.23e-05");
  EXPECT_EQ(NumberText({.mean = 0.0000123, .std = 0.0000045}), "1.23e-05 ± 4.5e-06");
}

TEST(HigherMetricIsBetter, NotOfThePrivacyThatWasSpent) {
  for (const char* spent :
       {"rule_epsilon", "best_rule_epsilon", "rule_epsilon_at_best_val_accuracy"}) {
    EXPECT_FALSE(HigherMetricIsBetter(spent)) << spent;
  }
  EXPECT_TRUE(HigherMetricIsBetter("val_accuracy_at_best_rule_epsilon"));
}

}  // namespace
}  // namespace macaw::cli
