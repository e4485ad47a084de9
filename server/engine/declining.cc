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
  node.declined = std::move(text);
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
  Advance(now);
}

void RoundEngine::GiveUpDeclined(std::optional<HoldingId> only) {
  if (!nodes_.AnybodyDeclines()) return;
  const auto declines = [&](HoldingId holding) {
    return (!only.has_value() || *only == holding) && nodes_.Decline(holding);
  };
  if (evaluation_.open()) {
    for (HoldingId holding; holding.value < roster_.holdings(); ++holding.value) {
      // What others could do waits for them.
      if (!roster_.owner_of(holding).empty() && declines(holding)) evaluation_.DoWithout(holding);
    }
  }
  if (state_ != State::kRunning || redoing() || phase_.dropped()) return;
  const std::vector<scheduler::Cohort> waiting = phase_.Waiting();
  std::vector<log::GivenUp> given_up;
  for (HoldingId holding; holding.value < waiting.size(); ++holding.value) {
    if (waiting[holding.value].entries.empty() || !declines(holding)) continue;
    const Node& node = nodes_.At(*nodes_.Of(holding).members.begin());
    for (const scheduler::CohortEntry& entry : waiting[holding.value].entries) {
      given_up.push_back({.attempt = {.client = entry.client},
                          .reason = fleet::LeftOutReason::kDeclined,
                          .message = absl::StrCat(node.name, ": ", node.declined)});
    }
  }
  Record(phase_.DoWithout(given_up));
}

uint64_t RoundEngine::NeededToOpen() const {
  if (options_.round.present_within > 0) return draw_->needed();
  const RoundRules& rules = options_.round;
  const bool quorum = rules.deadline > 0 || rules.below_quorum == RoundRules::BelowQuorum::kDrop;
  const uint64_t needed = quorum ? rules.Needed(draw_->needed()) : 1;
  return rules.enough > 0 ? std::min(needed, rules.enough) : needed;
}

}  // namespace macaw::server
