// examples/convex.toml against the golden table: the distance to the optimum after 10 and 50
// rounds. golden_test.cc (slow) goes on to 200.
#include <gtest/gtest.h>

#include "tests/system/golden.h"

namespace macaw {
namespace {

using namespace testing_support;

class Convex : public testing::TestWithParam<GoldenRun> {};

TEST_P(Convex, IsAsFarFromTheOptimumAsTheTableSays) { ExpectGolden(GetParam(), 2); }

INSTANTIATE_TEST_SUITE_P(Golden, Convex, testing::ValuesIn(GoldenRuns()),
                         [](const auto& param) { return param.param.algorithm; });

}  // namespace
}  // namespace macaw
