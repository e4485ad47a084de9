#pragma once

#include <cstdint>

#include "core/vector.h"
#include "plan/cohort.h"
#include "plan/privacy.h"

namespace macaw::algorithms::fixtures {

inline constexpr uint32_t kRounds = 100;

inline CohortConfig Poisson(uint64_t size) {
  CohortConfig cohort;
  cohort.size = size;
  cohort.sampling = "poisson";
  cohort.weight = WeightPolicy::kUniform;
  return cohort;
}

inline PrivacyConfig Gaussian(double clip, double noise) {
  return {.mechanism = "gaussian", .clip = clip, .noise = noise};
}

// A shared number, and a norm layer with its statistic.
inline LayoutPtr BatchNormNet() {
  return *ParameterLayout::Make(
      {{.name = "w", .shape = {1}},
       {.name = "bn.weight", .shape = {1}},
       {.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer}},
      DType::kF64);
}

}  // namespace macaw::algorithms::fixtures
