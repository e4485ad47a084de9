#pragma once

#include <array>
#include <string>
#include <vector>

#include "sdk/testing/round_loop.h"

namespace macaw::algorithms {

// The golden run on a9a: ten clients, rows sorted by label, ℓ2-regularised logistic regression
// without bias, labels ±1, all in double. F* and F − F* are an independent reference's.
struct GoldenRow {
  const char* label;
  const char* algorithm;
  std::map<std::string, ParameterValue> parameters;
  uint32_t steps;
  std::array<double, 4> gap;  // F − F* after 10, 50, 100 and 200 rounds
};
constexpr std::array<int, 4> kGoldenRounds = {10, 50, 100, 200};
const std::vector<GoldenRow>& GoldenRows();

// F − F* of the row after each of the first `checkpoints` of kGoldenRounds.
std::vector<double> GoldenGaps(const GoldenRow& row, size_t checkpoints);

}  // namespace macaw::algorithms
