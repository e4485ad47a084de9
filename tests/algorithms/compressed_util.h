#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/cohort.h"
#include "plan/update.h"

namespace macaw::algorithms {

inline CohortConfig CohortOf(uint64_t size, const std::string& sampling = "uniform") {
  CohortConfig cohort;
  cohort.size = size;
  cohort.sampling = sampling;
  cohort.weight = WeightPolicy::kUniform;
  return cohort;
}

inline UpdateConfig Update(std::vector<std::string> codec, std::string feedback = "auto") {
  return {.codec = std::move(codec), .feedback = std::move(feedback)};
}

}  // namespace macaw::algorithms
