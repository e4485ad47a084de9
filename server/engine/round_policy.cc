#include "server/engine/round_policy.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace macaw::server {
namespace {

// How often one node may leave out a client that others could train. It gets the client again only
// if no other node asks for it.
constexpr uint32_t kMostLeftOut = 2;

}  // namespace

Course CompleteRounds::Decide(const Standing& standing) const {
  return standing.complete() ? Course::kClose : Course::kWait;
}

Remedy CompleteRounds::OnTrouble(const Trouble& trouble) const {
  const bool agreed = trouble.nodes >= std::min(2u, std::max(1u, trouble.candidates));
  switch (trouble.kind) {
    case Trouble::Kind::kDied:
      if (trouble.times < limits_.deaths) return Remedy::kTryAgain;
      return agreed && !trouble.owned ? Remedy::kEndRun : Remedy::kGiveUpClient;
    case Trouble::Kind::kStateUnreadable:
      if (trouble.owned) return Remedy::kGiveUpClient;
      return agreed ? Remedy::kEndRun : Remedy::kTryAgain;
    case Trouble::Kind::kLeftOut:
      return agreed || trouble.owned || trouble.times >= kMostLeftOut ? Remedy::kGiveUpClient
                                                                      : Remedy::kTryAgain;
  }
  return Remedy::kEndRun;
}

bool CompleteRounds::GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const {
  return limits_.lost_rounds == 0 || in_a_row < std::min(limits_.lost_rounds, rounds);
}

uint64_t NeededOf(double quorum, uint64_t drawn) {
  // 0.7 times 10 is 7 clients, although the product of the doubles is a little more than 7.
  const double share = std::ceil(quorum * static_cast<double>(drawn) - 1e-9);
  return std::min(drawn, std::max<uint64_t>(1, static_cast<uint64_t>(std::max(0.0, share))));
}

absl::Status CheckRounds(const CohortConfig& cohort, const RoundRules& rules) {
  if (cohort.straggler_policy == "drop" && cohort.straggler_fraction >= 1) {
    return absl::InvalidArgumentError(
        "cohort.straggler_policy = \"drop\" with straggler_fraction = 1 leaves no client to train: "
        "lower the fraction");
  }
  if (cohort.sampling != "poisson" || (rules.enough == 0 && rules.quorum >= 1))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cohort.sampling = \"poisson\" divides by the planned cohort, and the clients that ",
      rules.enough > 0 ? "round.enough" : "round.quorum",
      " does not wait for would count as zeros: remove the key, or use \"uniform\""));
}

Course TimelyRounds::Decide(const Standing& standing) const {
  const bool enough = rules_.enough > 0 && standing.counted >= rules_.enough;
  const bool quorum = enough || standing.counted >= rules_.Needed(standing.drawn);
  const bool drops = rules_.below_quorum == RoundRules::BelowQuorum::kDrop;
  if (standing.complete())
    return quorum || !drops || standing.cohort == 0 ? Course::kClose : Course::kDropRound;
  if (enough) return Course::kCloseWithEnough;
  if (!standing.overdue) return Course::kWait;
  if (quorum) return Course::kCloseAtDeadline;
  return drops ? Course::kDropRound : Course::kWait;
}

}  // namespace macaw::server
