// Nodes whose owners do not let them work now. They stay registered and get no work, and nothing
// waits for what only they could do.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/round_engine.h"

namespace macaw::server {

void RoundEngine::NoteDeclined(Node& node, const std::string& why) {
  std::string text = log::Shortened(why);
  if (node.declined == text) return;
  Record(log::NodeDeclined{.node = node.id, .name = node.name, .why = text});
  nodes_.SetDeclined(node, std::move(text));
  if (!node.declined.empty()) phase_.RemoveFromPlan(node);
}

void RoundEngine::AnswerDeclining(Node& node, Poll poll, TimePoint now) {
  const HoldingId holding = node.holding;
  if (poll.request.running > 0) {  // what it has trained counts
    Answer(poll.ticket, fleet::LeaseReply{.next = fleet::Next::kCommit});
  } else {
    nodes_.Park(node, std::move(poll));
  }
  GiveUpDeclined(holding);
  ServeOthers(node, now);  // what was planned for it is for them
  Advance(now);
}

void RoundEngine::GiveUpDeclined(std::optional<HoldingId> only) {
  std::vector<HoldingId> holdings;
  if (!only.has_value()) {
    holdings.assign(nodes_.declining().begin(), nodes_.declining().end());
  } else if (nodes_.Decline(*only)) {
    holdings.push_back(*only);
  }
  bool waiting = false;
  for (const HoldingId holding : holdings) {
    // What others could do waits for them.
    if (!roster_.owner_of(holding).empty()) {
      const Node& node = nodes_.At(*nodes_.Of(holding).members.begin());
      DoTasksWithout(holding, fleet::LeftOutReason::kDeclined,
                     absl::StrCat(node.name, ": ", node.declined));
    }
    waiting = waiting || more_to_lease(holding);
  }
  if (!waiting || redoing() || phase_.dropped()) return;
  const std::vector<scheduler::Cohort> cohorts = phase_.Waiting();
  std::vector<log::GivenUp> given_up;
  for (const HoldingId holding : holdings) {
    if (!more_to_lease(holding)) continue;
    const Node& node = nodes_.At(*nodes_.Of(holding).members.begin());
    for (const scheduler::CohortEntry& entry : cohorts.at(holding.value).entries) {
      given_up.push_back({.attempt = {.client = entry.client},
                          .reason = fleet::LeftOutReason::kDeclined,
                          .message = absl::StrCat(node.name, ": ", node.declined)});
    }
  }
  Record(phase_.DoWithout(given_up));
}

uint64_t RoundEngine::NeededToOpen() const {
  // A step may go on with those that train.
  if (live_) return phase_.standing().leased > 0 || !train_on_.empty() ? 0 : 1;
  if (options_.round.present_within > 0) return draw_->needed();
  const RoundRules& rules = options_.round;
  const bool quorum = rules.deadline > 0 || rules.below_quorum == RoundRules::BelowQuorum::kDrop;
  const uint64_t needed = quorum ? rules.Needed(draw_->needed()) : 1;
  return rules.enough > 0 ? std::min(needed, rules.enough) : needed;
}

}  // namespace macaw::server
