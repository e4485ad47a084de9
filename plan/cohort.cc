#include "plan/cohort.h"

#include <algorithm>

namespace macaw {

using settings::AboveUpTo;
using settings::AtLeast;
using settings::Between;

namespace {

settings::Section<OortConfig> OortSection() {
  using O = OortConfig;
  settings::Section<O> f;
  f.Add("clip", &O::clip, "quantile of the clients' utilities beyond which a utility is clipped",
        AboveUpTo(0, 1));
  f.Add(
      "penalty", &O::penalty,
      "exponent a of the factor (T / t)^a on the score of a client whose turn takes t > T seconds",
      AtLeast(0));
  f.Add("round_threshold", &O::round_threshold,
        "quantile of the turns' seconds that is T at first; 1: no penalty", AboveUpTo(0, 1));
  f.Add("pacer_step", &O::pacer_step,
        "rounds whose utilities are compared with those of as many rounds before, to move T",
        AtLeast(1));
  f.Add("pacer_delta", &O::pacer_delta, "by which the quantile of T is moved", Between(0, 1));
  f.Add("exploration", &O::exploration,
        "share of a round's clients that were never asked before, times one decay in round 1",
        Between(0, 1));
  f.Add("exploration_decay", &O::exploration_decay, "factor on that share, each round",
        AboveUpTo(0, 1));
  f.Add("exploration_min", &O::exploration_min, "least of that share", Between(0, 1));
  f.Add("sample_window", &O::sample_window,
        "ratio of untried clients, drawn at random, to those of them that a round asks, drawn by "
        "speed",
        AtLeast(1));
  f.Add("cut_off", &O::cut_off,
        "share of the last chosen score from which on clients are drawn by their scores",
        Between(0, 1));
  f.Add("blacklist_rounds", &O::blacklist_rounds,
        "a client that has counted in more rounds is not drawn any more; 0: no limit", AtLeast(0));
  f.Add("blacklist_share", &O::blacklist_share, "most clients that are not drawn for that reason",
        Between(0, 1))
      .Needs([](const O& oort) { return oort.blacklist_rounds > 0; },
             "cohort.oort.blacklist_rounds above 0");
  return f;
}

}  // namespace

bool LearnsFromRounds(const CohortConfig& cohort) {
  return cohort.sampling == "oort" || cohort.sampling == "power-of-choice" ||
         cohort.sampling == "ucb";
}

bool FiltersClients(const CohortConfig& cohort) {
  return !cohort.eligible.empty() || cohort.min_rows.has_value();
}

uint64_t CountedOf(const CohortConfig& cohort, uint64_t examples) {
  return cohort.max_weight > 0 ? std::min(examples, cohort.max_weight) : examples;
}

bool NameMatches(absl::string_view name, absl::string_view pattern) {
  // Where the character that begins at `at` ends: names are UTF-8.
  const auto behind = [&](size_t at) {
    do ++at;
    while (at < name.size() && (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80);
    return at;
  };
  size_t n = 0, p = 0;
  // The last "*", and where the text that it stands for ends so far.
  std::optional<size_t> star;
  size_t end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      end = n;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      n = behind(n);
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star.has_value()) {
      p = *star + 1;
      n = end = behind(end);
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
  f.Add("size", &C::size, "clients a round; with cohort.sampling = \"sweep\" or \"cyclic\" at most",
        AtLeast(1))
      .Hidden([](const C& cohort) { return cohort.size == 0; });
  f.Add("fraction", &C::fraction, "share of the clients that can be drawn, instead of cohort.size",
        AboveUpTo(0, 1))
      .InsteadOf({"size"})
      .Hidden([](const C& cohort) { return cohort.fraction == 0; });
  f.AddChoice(
      "sampling", &C::sampling,
      {"uniform", "proportional", "poisson", "sweep", "cyclic", "available", "oort",
       "power-of-choice", "ucb"},
      "how a round's clients are drawn. uniform: distinct clients; proportional: with replacement, "
      "by examples (needs uniform weights); poisson: each client independently; sweep: every "
      "client once before any client again, in rounds of equal size; cyclic: a sweep, in the same "
      "order each time; available: uniform over the available clients; by what earlier rounds told: "
      "oort: large loss and fast; power-of-choice: the largest losses of some candidates; ucb: an "
      "upper bound of the loss");
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
  const auto samples = [](const char* word) {
    return [word](const C& cohort) { return cohort.sampling == word; };
  };
  f.Add("candidates", &C::candidates,
        "clients that are drawn by their examples, of whom the cohort.size with the largest losses "
        "train; 0: twice the clients that a round asks",
        AtLeast(0))
      .Needs(samples("power-of-choice"), "cohort.sampling = \"power-of-choice\"");
  f.Add("discount", &C::discount, "factor by which a loss counts less, each round", AboveUpTo(0, 1))
      .Needs(samples("ucb"), "cohort.sampling = \"ucb\"");
  const size_t others = f.fields().size();
  f.AddSection("oort", &C::oort, OortSection());
  for (size_t i = others; i < f.fields().size(); ++i) {
    auto& needs = f.fields()[i].needs;
    needs.insert(needs.begin(), {samples("oort"), "cohort.sampling = \"oort\""});
  }
  return f;
}

}  // namespace macaw
