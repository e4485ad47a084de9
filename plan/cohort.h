#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/settings/section.h"

namespace macaw {

enum class WeightPolicy : uint8_t { kExamples = 0, kUniform = 1, kTokens = 2 };

// Of sampling = "oort" (scheduler/oort.h), by the names of the published code.
struct OortConfig {
  double clip = 0.9;                // utilities above this quantile count as it
  double penalty = 2;               // α of (T / t)^α
  double round_threshold = 0.3;     // T is this quantile of the durations, until the pacer moves it
  uint32_t pacer_step = 20;         // rounds that the pacer compares with as many before
  double pacer_delta = 0.05;        // by which it moves the quantile
  double exploration = 0.9;         // ε before the first round
  double exploration_decay = 0.98;  // factor on ε, each round
  double exploration_min = 0.3;
  double sample_window = 5;  // of so many times the explored clients the fast ones are preferred
  double cut_off = 0.95;     // c: share of the last score that is drawn from
  uint32_t blacklist_rounds = 0;  // a client that counted more often is not drawn; 0: no limit
  double blacklist_share = 0.3;   // of the clients, at most
  friend bool operator==(const OortConfig&, const OortConfig&) = default;
};

struct CohortConfig {
  uint64_t size = 0;    // clients a round; of a sweep at most (scheduler/sweep.h)
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
  uint64_t candidates = 0;  // d of "power-of-choice"; 0: twice the clients that a round asks
  double discount = 0.7;    // γ of "ucb"
  OortConfig oort;
  friend bool operator==(const CohortConfig&, const CohortConfig&) = default;
};

// Whether cohorts follow what earlier rounds told of the clients (scheduler/feedback.h): "oort",
// "power-of-choice" and "ucb".
bool LearnsFromRounds(const CohortConfig& cohort);

// Whether keys of [cohort] say who may be drawn: eligible or min_rows.
bool FiltersClients(const CohortConfig& cohort);

// How many of a client's examples or tokens count in the mean.
uint64_t CountedOf(const CohortConfig& cohort, uint64_t examples);

// Whether a client's name matches the whole pattern of `eligible`: "*" is any text, "?" any one
// character of UTF-8.
bool NameMatches(absl::string_view name, absl::string_view pattern);

// The keys of [cohort].
settings::Section<CohortConfig> CohortSection();

}  // namespace macaw
