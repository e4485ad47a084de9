#include "tests/algorithms/a9a.h"

#include <gtest/gtest.h>

namespace macaw::algorithms {
namespace {

class A9aGolden : public ::testing::TestWithParam<GoldenRow> {};

TEST_P(A9aGolden, FollowsTheReferenceFor200Rounds) {
  const std::vector<double> gaps = GoldenGaps(GetParam(), kGoldenRounds.size());
  for (size_t k = 0; k < kGoldenRounds.size(); ++k) {
    RecordProperty("gap_" + std::to_string(kGoldenRounds[k]), std::to_string(gaps[k]));
    EXPECT_NEAR(gaps[k] / GetParam().gap[k], 1, 1e-2)
        << "F - F* = " << gaps[k] << " after " << kGoldenRounds[k] << " rounds";
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, A9aGolden, ::testing::ValuesIn(GoldenRows()),
                         [](const auto& test) { return test.param.label; });

}  // namespace
}  // namespace macaw::algorithms
