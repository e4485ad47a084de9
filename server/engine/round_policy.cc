#include "server/engine/round_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "plan/real_arrivals.h"

namespace macaw::server {
namespace {

// How often one node may leave out a client that others could train. It gets the client again only
// if no other node asks for it.
constexpr uint32_t kMostLeftOut = 2;
// How often the nodes of one owner may say that they cannot read a client's state.
constexpr uint32_t kMostUnreadable = 2;

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
      if (trouble.owned && trouble.times >= kMostUnreadable) return Remedy::kLoseState;
      if (!agreed) return Remedy::kTryAgain;
      return trouble.owned ? Remedy::kLoseState : Remedy::kEndRun;
    case Trouble::Kind::kLeftOut:
      return agreed || trouble.owned || trouble.times >= kMostLeftOut ? Remedy::kGiveUpClient
                                                                      : Remedy::kTryAgain;
  }
  return Remedy::kEndRun;
}

bool CompleteRounds::GoesOnAfterLost(uint32_t in_a_row, uint32_t rounds) const {
  return limits_.lost_rounds == 0 || in_a_row < std::min(limits_.lost_rounds, rounds);
}

absl::Status CheckChance(const CohortConfig& cohort, absl::string_view keys) {
  if (cohort.sampling != "poisson") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cohort.sampling = \"poisson\" draws each client with the chance cohort.size ÷ "
                   "population, which ",
                   keys, " would change: use \"uniform\""));
}

absl::Status CheckRounds(const CohortConfig& cohort, const RoundRules& rules) {
  MACAW_RETURN_IF_ERROR(CheckEnough(cohort, rules));
  if (FiltersClients(cohort))
    MACAW_RETURN_IF_ERROR(CheckChance(cohort, "cohort.eligible or cohort.min_rows"));
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

absl::Status CheckLiveSteps(const RunPlan& run, const RoundRules& rules, bool stateful) {
  if (!DevicesArrive(run)) return absl::OkStatus();
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("round.mode = \"", run.asynchronous.mode, "\" on a fleet: ", why));
  };
  if (run.asynchronous.mixed())
    return refuse(
        "only \"buffered\" is made for fleets; cohort.size = 1 steps at each arrival, too");
  if (run.asynchronous.refill != 1) {
    return refuse("new clients begin with each step; round.refill is for simulations: take it out");
  }
  if (rules.enough > 0)
    return refuse("a step closes with cohort.size arrivals: take round.enough out");
  if (rules.below_quorum == RoundRules::BelowQuorum::kDrop) {
    return refuse(
        "what has arrived is not dropped: take round.below_quorum out; a step below round.quorum "
        "waits on");
  }
  if (stateful) {
    return refuse(
        "what clients keep between rounds is not for clients that train over several rounds yet: "
        "choose an [update] without feedback");
  }
  return absl::OkStatus();
}

Course DecideStep(const RoundRules& rules, uint64_t arrivals, const Standing& standing) {
  if (standing.complete()) return Course::kClose;
  if (standing.arriving == 0 && standing.counted >= arrivals) return Course::kClose;
  if (!standing.overdue || standing.counted < rules.Needed(arrivals)) return Course::kWait;
  return standing.arriving > 0 ? Course::kCloseAtDeadline : Course::kClose;
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
