#include "plan/cohort.h"

#include <algorithm>

namespace macaw {

using settings::AboveUpTo;
using settings::AtLeast;
using settings::Between;

uint64_t CountedOf(const CohortConfig& cohort, uint64_t examples) {
  return cohort.max_weight > 0 ? std::min(examples, cohort.max_weight) : examples;
}

bool NameMatches(absl::string_view name, absl::string_view pattern) {
  size_t n = 0, p = 0;
  // The last "*", and where the text that it stands for ends so far.
  std::optional<size_t> star;
  size_t end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star.has_value()) {
      p = *star + 1;
      n = ++end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

settings::Section<CohortConfig> CohortSection() {
  using C = CohortConfig;
  settings::Section<C> f;
  f.Add("size", &C::size, "clients a round", AtLeast(1)).Hidden([](const C& cohort) {
    return cohort.size == 0;
  });
  f.Add("fraction", &C::fraction, "share of the clients that can be drawn, instead of cohort.size",
        AboveUpTo(0, 1))
      .InsteadOf({"size"})
      .Hidden([](const C& cohort) { return cohort.fraction == 0; });
  f.AddChoice(
      "sampling", &C::sampling, {"uniform", "proportional", "poisson", "sweep", "available"},
      "how a round's clients are drawn. uniform: distinct clients; proportional: with replacement, "
      "by examples (needs uniform weights); poisson: each client independently; sweep: every "
      "client once before any client again; available: uniform over the available clients");
  f.AddChoice("weight", &C::weight,
              {{"examples", WeightPolicy::kExamples},
               {"uniform", WeightPolicy::kUniform},
               {"tokens", WeightPolicy::kTokens}},
              "a client's weight in the mean: its training examples, 1, or its tokens");
  f.Add("max_weight", &C::max_weight,
        "examples or tokens as which a client counts at most, however many it says it has; 0: no "
        "limit",
        AtLeast(0))
      .Needs([](const C& cohort) { return cohort.weight != WeightPolicy::kUniform; },
             "cohort.weight = \"examples\" or \"tokens\"");
  f.AddSeed("seed", &C::seed, "seed of the cohorts; default: run.seed");
  f.Add("eligible", &C::eligible,
        "names of the clients that may be drawn, * for any text and ? for any character; default: "
        "all clients");
  f.Add("min_rows", &C::min_rows, "training rows that a client needs to be drawn; default: 1",
        AtLeast(1));
  f.Add("straggler_fraction", &C::straggler_fraction,
        "share of the clients that is too slow for its whole work in a round", Between(0, 1));
  f.AddChoice("straggler_policy", &C::straggler_policy, {"partial", "drop"},
              "what stragglers do: 1 to epochs-1 epochs, with one epoch or with local.steps 1 to "
              "steps-1 steps; or nothing")
      .Needs([](const C& cohort) { return cohort.straggler_fraction > 0; },
             "cohort.straggler_fraction above 0");
  const auto by_availability = [](const C& cohort) { return cohort.sampling == "available"; };
  const char* const available = "cohort.sampling = \"available\"";
  f.Add("availability", &C::availability, "probability that a client is available in a round",
        AboveUpTo(0, 1))
      .Needs(by_availability, available);
  f.Add("availability_swing", &C::availability_swing,
        "share of the availability that follows the time of day, with a phase a client",
        Between(0, 1))
      .Needs(by_availability, available);
  f.Add("availability_day", &C::availability_day, "length of a day, in rounds", AtLeast(1))
      .Needs(by_availability, available)
      .Needs([](const C& cohort) { return cohort.availability_swing > 0; },
             "cohort.availability_swing above 0");
  f.Add("over_selection", &C::over_selection,
        "ratio of asked clients to cohort.size; the first cohort.size reports count", AtLeast(1));
  const auto over = [](const C& cohort) { return cohort.over_selection > 1; };
  f.Add("device_spread", &C::device_spread,
        "standard deviation of ln(seconds per row) between clients; it decides who reports first",
        AtLeast(0))
      .Needs(over, "cohort.over_selection above 1");
  f.Add("round_spread", &C::round_spread,
        "standard deviation of ln(seconds) between a client's rounds", AtLeast(0))
      .Needs(over, "cohort.over_selection above 1");
  return f;
}

}  // namespace macaw
