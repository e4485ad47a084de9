#include "tests/system/golden.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "testing/public_data.h"
#include "tests/system/libtorch.h"
#include "tests/system/rows.h"
#include "tests/system/simulation.h"

namespace macaw::testing_support {
namespace {

constexpr double kOptimum = .33334075206871;  // F* of a9a with lambda = 1e-3
constexpr double kTolerance = 1e-2;           // relative

}  // namespace

std::vector<GoldenRun> GoldenRuns() {
  return {{"gd", {1.40e-1, 5.15e-2, 2.90e-2, 1.43e-2}},
          {"fedavg", {8.07e-2, 3.27e-2, 2.52e-2, 2.21e-2}},
          {"fedprox", {1.13e-1, 4.12e-2, 2.59e-2, 1.76e-2}},
          {"scaffold", {3.36e-2, 4.18e-3, 1.14e-3, 2.15e-4}},
          {"mime", {2.88e-2, 4.03e-3, 1.12e-3, 2.12e-4}},
          {"feddyn", {1.25e-2, 2.44e-4, 2.88e-5, 1.62e-6}}};
}

void ExpectGolden(const GoldenRun& golden, size_t checkpoints) {
  if (golden.algorithm == "mime") {
    MACAW_NEEDS_LIBTORCH();
  }
  const uint32_t rounds = kGoldenRounds[checkpoints - 1];
  Simulation run(golden.algorithm,
                 {MACAW_SOURCE_DIR "/examples/convex.toml", "--rounds", absl::StrCat(rounds),
                  "--set", absl::StrCat("data.path=", PublicData("a9a.gz")), "--set",
                  absl::StrCat("algorithm.name=", golden.algorithm), "--quiet"});
  ASSERT_EQ(run.Wait(), 0) << run.output();
  std::vector<double> objective;
  for (const nlohmann::json& row : RowsOf(run))
    objective.push_back(row["train_objective"].get<double>());
  ASSERT_EQ(objective.size(), rounds);
  for (size_t i = 0; i < checkpoints; ++i) {
    const double gap = objective[kGoldenRounds[i] - 1] - kOptimum;
    EXPECT_NEAR(gap / golden.gap[i], 1, kTolerance)
        << "F - F* = " << gap << " after " << kGoldenRounds[i] << " rounds";
  }
  EXPECT_EQ(run.summary()["final"]["train_objective"].get<double>(), objective.back());
}

}  // namespace macaw::testing_support
