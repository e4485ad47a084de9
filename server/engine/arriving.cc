// Rounds of a fleet that do not wait for each other: a round (an ArrivalStep, phase.h) counts the
// clients that arrive in it, whenever they began. A client arrives when its node has trained it and
// is told in which round it counts; from that follow its discount and the grid of its sum, so its
// update is what a simulation's client would have sent. Then its part comes as any other.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/round_engine.h"

namespace macaw::server {

void RoundEngine::TakeArrival(Node& node, Poll poll, TimePoint now) {
  if (!node.declined.empty()) GiveUpDeclined(node.holding);  // what it has begun counts
  if (!Serve(node, poll.request, poll.ticket, now)) {
    parked_early_ = parked_early_ || !caught_up();
    nodes_.Park(node, std::move(poll));
    if (std::ranges::find(arrivals_, node.id) == arrivals_.end()) arrivals_.push_back(node.id);
  }
  ServeOthers(node, now);
  Advance(now);
}

bool RoundEngine::ServeArrival(Node& node, const fleet::LeaseRequest& request, Ticket ticket,
                               TimePoint now) {
  if (!caught_up()) return false;
  if (EvaluatesFirst(node)) {
    Record(phase_.Release(node.id, request.trained,
                          absl::StrCat(node.name, " evaluates before a round opens")));
    for (const Attempt& attempt : request.trained)
      std::erase_if(train_on_, [&](const auto& one) { return one.attempt == attempt; });
    Answer(ticket, fleet::LeaseReply{.next = fleet::Next::kCommit});
    return true;
  }
  const auto trains_on = [&](const Attempt& attempt) {
    return std::ranges::find(train_on_, attempt, &Restored::TrainsOn::attempt) != train_on_.end();
  };
  if (std::ranges::any_of(request.trained, trains_on)) return false;  // until a round opens
  if (!live_ || !phase_.NotHeld(node.id, request.trained).empty()) {  // others have them, or nobody
    Answer(ticket, fleet::LeaseReply{.next = fleet::Next::kCommit});
    return true;
  }
  // A node has one client at a time.
  const Attempt& attempt = request.trained.front();
  if (state_ != State::kRunning || operators_.abort) return false;
  if (!phase_.arriving(attempt.client)) {
    const uint32_t staleness = phase_.Find(attempt.client)->staleness;
    const uint32_t most = options_.run.asynchronous.max_staleness;
    if (most > 0 && staleness > most) {
      Record(phase_.GiveUp(attempt, {.reason = fleet::LeftOutReason::kTooSlow,
                                     .message = absl::StrCat(
                                         "its model was ", staleness,
                                         " rounds old, more than round.max_staleness = ", most)}));
      Answer(ticket, fleet::LeaseReply{.next = fleet::Next::kCommit});
      return true;
    }
    // The round does not close before the evaluation of the round before. A node that is to do some
    // of that does not wait for the next round.
    if (!evaluation_.waits_for(node) && (!phase_.TakesArrivals() || Decide() != Course::kWait))
      return false;
    // It has some time to send its part. Asking once more gives it no more of it.
    node.progressed = now;
    node.leased_until = std::max(node.leased_until, now + LeastLease());
    Renew(node, now);
  }
  Answer(ticket, fleet::LeaseReply{.next = fleet::Next::kWork, .training = phase_.Arrive(attempt)});
  return true;
}

bool RoundEngine::EvaluatesFirst(const Node& node) const {
  const bool last = completed_ >= LastRound();
  return state_ == State::kDraining && (last || options_.evaluation_gates) &&
         evaluation_.waits_for(node);
}

void RoundEngine::ServeArrivals(TimePoint now) {
  std::deque<WorkerId> waiting;
  while (!arrivals_.empty()) {
    const WorkerId id = arrivals_.front();
    arrivals_.pop_front();
    if (!nodes_.Knows(id)) continue;
    Node& node = nodes_.At(id);
    if (!node.poll.has_value() || node.poll->request.trained.empty()) continue;
    if (Serve(node, node.poll->request, node.poll->ticket, now)) {
      nodes_.Unpark(node, now);
      continue;
    }
    waiting.push_back(id);
    if (!evaluation_.open()) break;  // those behind it wait, too
  }
  arrivals_.insert(arrivals_.begin(), waiting.begin(), waiting.end());
}

void RoundEngine::GiveUpGoneClients(const std::vector<HoldingId>& rows) {
  if (redoing()) return;
  const std::vector<scheduler::Cohort> waiting = phase_.Waiting();
  std::vector<log::GivenUp> given_up;
  for (const HoldingId holding : rows) {
    if (!more_to_lease(holding) || holding.value >= waiting.size()) continue;
    for (const scheduler::CohortEntry& entry : waiting[holding.value].entries) {
      given_up.push_back({.attempt = {.client = entry.client},
                          .reason = fleet::LeftOutReason::kGone,
                          .message = WhyGone()});
    }
  }
  Record(phase_.DoWithout(given_up));
}

}  // namespace macaw::server
