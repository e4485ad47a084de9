#include "server/coarse_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/run_plan.h"

namespace macaw::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(CoarseSums, AreThoseThatKeepTenBitsOfTheLargestUpdate) {
  EXPECT_FALSE(IsCoarse(0)) << "all updates are zero";
  EXPECT_TRUE(IsCoarse(1e-18));
  EXPECT_TRUE(IsCoarse(0x1p-41));
  EXPECT_FALSE(IsCoarse(0x1p-40));
  EXPECT_FALSE(IsCoarse(1));
}

TEST(CoarseSums, AreNoMatterUnderBoundsAsUsual) {
  EXPECT_FALSE(MayBeCoarse(RunPlan().contribution_bound));
  EXPECT_FALSE(MayBeCoarse(1e6));
  EXPECT_TRUE(MayBeCoarse(1e7));
}

TEST(CoarseSums, SayTheRoundTheKeyAndWhatToDo) {
  const std::vector<std::pair<std::string, double>> used = {{"tau", 1e-18}, {"delta", 2e-17}};
  EXPECT_THAT(CoarseSumsText(Round(7), used, {"delta"}),
              AllOf(HasSubstr("round 7"), HasSubstr("(delta) is 2e-17 of"),
                    HasSubstr("set a smaller run.contribution_bound")));
  EXPECT_EQ(CoarseSumsText(Round(7), {{"tau", 1e-18}, {"delta", 1e-7}}, {"delta"}), "")
      << "tau has a bound of its own";
}

}  // namespace
}  // namespace macaw::server
