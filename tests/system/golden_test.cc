// The whole golden table, up to round 200, through the real programs.
#include "tests/system/golden.h"

#include <gtest/gtest.h>

namespace macaw {
namespace {

using namespace testing_support;

class GoldenTable : public testing::TestWithParam<GoldenRun> {};

TEST_P(GoldenTable, HoldsFor200Rounds) { ExpectGolden(GetParam(), kGoldenRounds.size()); }

INSTANTIATE_TEST_SUITE_P(Of, GoldenTable, testing::ValuesIn(GoldenRuns()),
                         [](const auto& param) { return param.param.algorithm; });

}  // namespace
}  // namespace macaw
