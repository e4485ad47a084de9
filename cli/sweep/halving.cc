#include "cli/sweep/halving.h"

#include <algorithm>
#include <cmath>

namespace macaw::cli {

Standing StandingOf(const SweepPlan& plan, const std::map<std::string, JobResult>& results,
                    size_t configuration, size_t rung) {
  Standing standing;
  const Configuration& what = plan.configurations[configuration];
  double sum = 0;
  size_t count = 0;
  for (const uint64_t seed : plan.seeds) {
    std::optional<double>& value = standing.values.emplace_back();
    const auto result = results.find(JobName(what, seed));
    if (result == results.end()) continue;
    const auto reached = result->second.rungs.find(plan.RoundsOf(what, rung));
    if (reached == result->second.rungs.end()) continue;
    const auto found = reached->second.find(plan.metric);
    if (found == reached->second.end() || !std::isfinite(found->second)) continue;
    value = found->second;
    sum += found->second;
    ++count;
  }
  standing.complete = count == plan.seeds.size();
  if (count > 0) standing.mean = sum / static_cast<double>(count);
  return standing;
}

bool ComesBefore(const SweepPlan& plan, const Standing& a, const Standing& b) {
  if (a.mean.has_value() != b.mean.has_value()) return a.mean.has_value();
  if (a.complete != b.complete) return a.complete;
  if (!a.mean.has_value() || *a.mean == *b.mean) return false;
  return plan.higher ? *a.mean > *b.mean : *a.mean < *b.mean;
}

std::vector<size_t> ConfigurationsOf(const SweepPlan& plan,
                                     const std::map<std::string, JobResult>& results, size_t rung) {
  std::vector<size_t> configurations;
  if (rung == 0) {
    for (size_t i = 0; i < plan.configurations.size(); ++i) configurations.push_back(i);
    return configurations;
  }
  configurations = ConfigurationsOf(plan, results, rung - 1);
  const size_t kept = (configurations.size() + plan.factor - 1) / plan.factor;
  std::map<size_t, Standing> standings;
  for (const size_t i : configurations) standings[i] = StandingOf(plan, results, i, rung - 1);
  std::ranges::stable_sort(configurations, [&](size_t a, size_t b) {
    return ComesBefore(plan, standings.at(a), standings.at(b));
  });
  configurations.resize(kept);
  std::erase_if(configurations, [&](size_t i) { return !standings.at(i).mean.has_value(); });
  std::ranges::sort(configurations);
  return configurations;
}

size_t MostOf(const SweepPlan& plan, size_t rung) {
  size_t count = plan.configurations.size();
  for (size_t i = 0; i < rung; ++i) count = (count + plan.factor - 1) / plan.factor;
  return count;
}

}  // namespace macaw::cli
