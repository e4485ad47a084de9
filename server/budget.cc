#include "server/budget.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "algorithms/around/accountant.h"
#include "algorithms/around/privacy.h"
#include "algorithms/around/registry.h"

namespace macaw::server {
namespace {

constexpr char kEpsilon[] = "rule_epsilon";

std::optional<algorithms::Accountant> AccountantOf(const RunPlan& run) {
  if (!run.privacy.on() || run.clients == 0) return std::nullopt;
  const auto privacy =
      algorithms::Privacy::Of(run.privacy, algorithms::SetupOf(run, nullptr), run.rounds);
  return algorithms::Accountant(privacy.q, run.privacy.noise);
}

}  // namespace

absl::StatusOr<std::optional<Budget>> BudgetOf(const StopRule& rule, const RunPlan& run) {
  if (rule.metric != kEpsilon || !rule.at_least.has_value()) return std::nullopt;
  const std::optional<algorithms::Accountant> accountant = AccountantOf(run);
  if (!accountant.has_value()) return std::nullopt;
  const auto epsilon = [&](uint32_t rounds) {
    return accountant->RenyiEpsilon(rounds, run.privacy.delta);
  };
  const double most = *rule.at_least;
  if (run.rounds == 0 || epsilon(run.rounds) <= most) return std::nullopt;
  if (epsilon(1) > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "run.stop.at_least = %g is less than rule_epsilon after one round, %.4g: raise it, or "
        "privacy.noise (`macaw privacy` says which noise is enough)",
        most, epsilon(1)));
  }
  uint32_t within = 1, beyond = run.rounds;  // ε grows with the rounds
  while (beyond - within > 1) {
    const uint32_t middle = within + (beyond - within) / 2;
    (epsilon(middle) <= most ? within : beyond) = middle;
  }
  return Budget{.rounds = within,
                .reason = absl::StrFormat(
                    "rule_epsilon is %.6g after round %d and would be %.6g after the next one "
                    "(run.stop.at_least = %g is the budget)",
                    epsilon(within), within, epsilon(beyond), most)};
}

std::optional<double> EpsilonOf(const RunPlan& run, uint32_t rounds) {
  const std::optional<algorithms::Accountant> accountant = AccountantOf(run);
  if (!accountant.has_value()) return std::nullopt;
  return rounds == 0 ? 0.0 : accountant->Epsilon(rounds, run.privacy.delta);
}

}  // namespace macaw::server
