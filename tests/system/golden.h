#pragma once

#include <array>
#include <string>
#include <vector>

namespace macaw::testing_support {

// examples/convex.toml on a9a, against an independent reference: F − F* after so many rounds.
struct GoldenRun {
  std::string algorithm;
  std::array<double, 4> gap;
};
constexpr std::array<uint32_t, 4> kGoldenRounds = {10, 50, 100, 200};
std::vector<GoldenRun> GoldenRuns();

// Runs it for the first `checkpoints` of kGoldenRounds, through the real programs, and expects the
// reference's gaps to 1e-2.
void ExpectGolden(const GoldenRun& golden, size_t checkpoints);

}  // namespace macaw::testing_support
