#include "training/api/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macaw::training {

double ScheduleFactor(const Schedule& schedule, uint32_t round) {
  const uint32_t first = 1;
  if (round <= schedule.warmup_rounds) {
    return static_cast<double>(std::max(round, first)) / (schedule.warmup_rounds + 1.0);
  }
  // Rounds of the schedule before this one, warm-up excluded.
  const uint32_t passed = round - std::min(round, schedule.warmup_rounds + first);
  if (schedule.kind == "step") {
    return std::pow(schedule.gamma, passed / std::max(schedule.every, 1u));
  }
  if (schedule.kind == "exponential") return std::pow(schedule.gamma, passed);
  if (schedule.kind == "cosine") {
    // As PyTorch's CosineAnnealingLR with T_max = the schedule's rounds without warm-up: 1 in the
    // first of them. The last one is a step above the floor, which follows it and stays.
    const uint32_t proper = schedule.rounds - std::min(schedule.rounds, schedule.warmup_rounds);
    const double turn = std::min(passed / static_cast<double>(std::max(proper, first)), 1.0);
    return schedule.floor +
           (1.0 - schedule.floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * turn));
  }
  return 1.0;
}

Schedule LocalSchedule(const RunPlan& run) {
  Schedule schedule = run.local.lr_schedule;
  if (schedule.rounds == 0) schedule.rounds = run.rounds;
  return schedule;
}

std::optional<uint32_t> FirstIdleRound(const Schedule& schedule, uint32_t rounds) {
  const auto idle = [&](uint32_t round) { return ScheduleFactor(schedule, round) == 0; };
  if (rounds == 0 || !idle(rounds)) return std::nullopt;
  // Behind the warm-up no factor is above the one before it.
  uint32_t trains = std::min(schedule.warmup_rounds, rounds), first = rounds;
  while (first - trains > 1) {
    const uint32_t middle = trains + (first - trains) / 2;
    (idle(middle) ? first : trains) = middle;
  }
  return first;
}

absl::StatusOr<Schedule> ParseSchedule(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  const auto refuse = [&text](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("schedule \"", text, "\": ", why));
  };
  const std::string kind = words.empty() ? "" : words[0];
  // The values that each kind requires.
  std::vector<std::string> missing;
  if (kind == "step") {
    missing = {"gamma", "every"};
  } else if (kind == "exponential") {
    missing = {"gamma"};
  } else if (kind == "cosine") {
    missing = {"rounds"};
  } else if (kind != "constant") {
    return refuse("begins with constant, step, exponential or cosine");
  }
  Schedule schedule{.kind = kind};
  std::vector<std::string> read;
  for (size_t i = 1; i < words.size(); i += 2) {
    const std::string& key = words[i];
    const std::string value = i + 1 < words.size() ? words[i + 1] : "";
    if (std::ranges::count(read, key) > 0)
      return refuse(absl::StrCat("'", key, "' is there twice: take one out"));
    const bool ours =
        std::erase(missing, key) > 0 || key == "warmup" || (key == "floor" && kind == "cosine");
    if (!ours) return refuse(absl::StrCat("'", key, "' is not a word of ", kind));
    read.push_back(key);
    double number = 0;
    if (!absl::SimpleAtod(value, &number) || !(number >= 0) || !std::isfinite(number)) {
      return refuse(absl::StrCat("'", key, "' needs a number that is not negative"));
    }
    uint32_t whole = 0;
    // The bounds of [local.lr_schedule] (plan/local.cc).
    if (key == "gamma") {
      if (number == 0) return refuse("'gamma' needs a number above 0");
      schedule.gamma = number;
    } else if (key == "floor") {
      if (number > 1) return refuse("'floor' needs a number from 0 to 1");
      schedule.floor = number;
    } else if (!absl::SimpleAtoi(value, &whole) || (whole == 0 && key != "warmup")) {
      return refuse(absl::StrCat("'", key, "' needs a whole number of rounds"));
    } else {
      (key == "every"    ? schedule.every
       : key == "rounds" ? schedule.rounds
                         : schedule.warmup_rounds) = whole;
    }
  }
  if (!missing.empty()) return refuse(absl::StrCat("'", missing[0], "' is missing"));
  return schedule;
}

}  // namespace macaw::training
