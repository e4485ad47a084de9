// Going on where an earlier server of the run died: its rounds are done again from the parts that
// it accepted, and its open phase gets back its parts and leases.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/part_checks.h"
#include "server/engine/round_engine.h"

namespace macaw::server {

Effects RoundEngine::Resume(Restored restored, TimePoint now) {
  for (Restored::Member& member : restored.members) {
    if (member.there) {
      Node node{.id = member.node, .session = member.session, .last_commit = member.last_commit};
      Join(member.request, std::move(member.table), std::move(node), now);
    } else {
      const HoldingId holding = roster_.Add(member.request, std::move(member.table));
      const bool given_up = operators_.given_up.contains(roster_.owner_of(holding));
      if (!restored.begun && !given_up) awaited_.insert(holding);
    }
  }
  nodes_.NumberFrom(restored.newest);
  const bool begun = restored.begun;
  if (!awaited_.empty() && options_.round.deadline > 0)
    deadline_ = now + FromSeconds(options_.round.deadline);
  if (live_) train_on_ = std::move(restored.train_on);
  restored_ = RestoredPhases(std::move(restored));
  if (begun || ReadyToBegin()) Begin(now);
  return Take();
}

void RoundEngine::RestorePhase(const Restored::PhaseStory& before, TimePoint now) {
  if (before.broadcast != phase_.broadcast().name) {
    return Fail(absl::DataLossError(absl::StrCat(
        "round ", phase_.round().value,
        " begins from another model than the run's log says it did: its checkpoint or its journal "
        "is not the run's. Remove the folder journal/ to go back to the newest checkpoint")));
  }
  const TimePoint expires = now + options_.lease_timeout;
  phase_.DoWithout(before.gave_up);
  if (!before.dropped.empty()) {
    phase_.Drop(before.dropped);
    if (!before.closed) ForgetAtClose();
    states_.versions().DropStaged();
    if (!before.closed) hold_nothing_.clear();
    return;
  }
  RestoreParts(before.accepted, expires);
  RestoreLeases(before, now);
  if (!before.closed) ForgetAtClose();  // what was lost until now
}

void RoundEngine::RestoreLeases(const Restored::PhaseStory& before, TimePoint now) {
  std::set<WorkerId> gone;
  for (const auto& [attempt, id] : before.leased) {
    RestoreLease(attempt, id, now);
    if (!nodes_.Knows(id) || hold_nothing_.contains(id)) gone.insert(id);
  }
  if (before.closed) return;
  for (const WorkerId node : gone)
    Record(phase_.DropNode(node, absl::StrCat("a lease never reached node ", node.value)));
  hold_nothing_.clear();
}

void RoundEngine::RestoreLease(const Attempt& attempt, WorkerId id, TimePoint now) {
  phase_.Restore(attempt, id, now + options_.lease_timeout);
  if (!nodes_.Knows(id)) return;
  Node& node = nodes_.At(id);
  node.leased_until = std::max(node.leased_until, now) + TaskLimit() / std::max(node.slots, 1U);
}

void RoundEngine::RestoreTrainOn(TimePoint now) {
  const std::vector<Restored::TrainsOn> train_on = std::exchange(train_on_, {});
  if (restored_.Find(phase_.round(), Phase(0)) != nullptr) return;  // it says who trains
  for (const Restored::TrainsOn& one : train_on) RestoreLease(one.attempt, one.node, now);
}

void RoundEngine::RestoreParts(const std::vector<Restored::AcceptedPart>& parts,
                               TimePoint expires) {
  for (const Restored::AcceptedPart& accepted : parts) {
    for (const Attempt& attempt : AttemptsOf(accepted.part))
      phase_.Restore(attempt, accepted.node, expires);
    const Node node{.id = accepted.node, .name = accepted.node_name};
    phase_.Accept(node, /*commit=*/0, accepted.part);
    for (const fleet::ClientRecord& record : accepted.part.included) {
      if (record.has_state) states_.versions().Stage(record.attempt);
    }
    if (accepted.part.included.empty()) continue;
    phase_.Adding();
    effects_.orders.emplace_back(AddPartAgain{.part = accepted.part});
  }
}

}  // namespace macaw::server
