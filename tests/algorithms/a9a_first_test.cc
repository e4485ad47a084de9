#include <gtest/gtest.h>

#include "tests/algorithms/a9a.h"

namespace macaw::algorithms {
namespace {

// The first ten rounds, in seconds; a9a_test.cc (slow) goes on to 200.
TEST(A9a, EveryRowOfTheGoldenRunBeginsAsItShould) {
  for (const GoldenRow& row : GoldenRows()) {
    EXPECT_NEAR(GoldenGaps(row, 1)[0] / row.gap[0], 1, 1e-2) << row.label;
  }
}

}  // namespace
}  // namespace macaw::algorithms
