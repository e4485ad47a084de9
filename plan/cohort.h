#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/settings/section.h"

namespace macaw {

enum class WeightPolicy : uint8_t { kExamples = 0, kUniform = 1, kTokens = 2 };

struct CohortConfig {
  uint64_t size = 0;    // clients a round
  double fraction = 0;  // > 0: of the clients that can be drawn, until the plan is resolved
  std::string sampling = "uniform";  // a name of scheduler/cohort.h
  WeightPolicy weight = WeightPolicy::kExamples;
  // At most so many examples or tokens of a client count (McMahan et al. 2018, "Learning
  // differentially private recurrent language models", ŵ); 0: all of them.
  uint64_t max_weight = 0;
  uint64_t seed = 0;
  // Who may be drawn: clients whose names match one of these patterns ("*" is any text, "?" any
  // character; none: everybody) and that have at least so many training rows.
  std::vector<std::string> eligible;
  std::optional<uint32_t> min_rows;
  // Clients that are too slow to do their whole work, drawn from `seed` in each round
  // (training/api/straggler.h).
  double straggler_fraction = 0;
  std::string straggler_policy = "partial";  // or "drop": they are left out of the cohort
  // Which clients are available, if sampling is "available" (scheduler/availability.h).
  double availability = 0.5;       // probability, (0, 1]
  double availability_swing = 0;   // the part of it that follows the time of day, [0, 1]
  uint32_t availability_day = 24;  // rounds
  // Over-selection: this many times `size` clients are asked, and the `size` that report first are
  // kept (scheduler/over_selection.h). The spreads are those of the clients' emulated durations.
  double over_selection = 1;
  double device_spread = 1, round_spread = 0.2;
  friend bool operator==(const CohortConfig&, const CohortConfig&) = default;
};

// How many of a client's examples or tokens count in the mean.
uint64_t CountedOf(const CohortConfig& cohort, uint64_t examples);

// Whether a client's name matches the whole pattern of `eligible`: "*" is any text, "?" any one
// byte.
bool NameMatches(absl::string_view name, absl::string_view pattern);

// The keys of [cohort].
settings::Section<CohortConfig> CohortSection();

}  // namespace macaw
