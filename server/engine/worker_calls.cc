// The calls of workers, except registration (joining.cc) and commits (commits.cc): leases,
// heartbeats, releases, uploads.
#include <algorithm>
#include <utility>

#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

using fleet::Next;

// The longest time for which a call for work is parked, whatever the request asks. Workers ask
// again soon.
constexpr Duration kLongestPoll = std::chrono::seconds(60);

// How often the leases of a node that is paced may get lost on their way to it. Each costs records
// of the log.
constexpr Allowance kUnreached = {.every = std::chrono::seconds(1), .burst = 20};

}  // namespace

// ---- leases

Effects RoundEngine::Lease(Ticket ticket, const fleet::LeaseRequest& request, TimePoint now) {
  FindWork(ticket, request, now);
  return Take();
}

void RoundEngine::FindWork(Ticket ticket, const fleet::LeaseRequest& request, TimePoint now) {
  const auto answer = [&](fleet::LeaseReply reply) { Answer(ticket, std::move(reply)); };
  Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return answer(fleet::LeaseReply::OfUnknownSession());
  if (state_ == State::kEnded) {
    nodes_.SetTold(*node);
    return answer({.next = Next::kFinished});
  }
  NoteDeclined(*node, request.declined);
  OnHeard(*node, now);
  if (node->poll.has_value())  // its connection broke, and it calls again
    Answer(nodes_.Unpark(*node, now).ticket, fleet::LeaseReply{.next = Next::kWait});
  // It says that it holds nothing. Beyond the allowance its leases stay, and it asks again.
  if (request.paced && request.running == 0 && phase_.leased_to(node->id) > 0 &&
      !node->unreached.Take(kUnreached, now))
    return answer({.next = Next::kWait});
  bool for_others = false;     // there is work again that other nodes may do
  if (request.running == 0) {  // it holds no leases, so its last lease never arrived
    auto lost = phase_.DropNode(node->id, absl::StrCat("a lease never reached ", node->name));
    for_others = evaluation_.DropNode(node->id) || lost.has_value();
    if (lost.has_value()) {  // or it only says so
      for (const Attempt& attempt : lost->attempts)
        troubles_.RanOut(node->name, attempt.client, now + LeastLease());
    }
    Record(std::move(lost));
    if (!caught_up()) hold_nothing_.insert(node->id);
  }
  Poll poll{.ticket = ticket,
            .since = now,
            .deadline = now + std::min(request.wait, kLongestPoll),
            .request = request};
  if (!request.trained.empty()) return TakeArrival(*node, std::move(poll), now);
  if (!node->declined.empty()) return AnswerDeclining(*node, std::move(poll), now);
  const bool served = Serve(*node, request, ticket, now);
  if (std::exchange(passed_over_, false) || for_others) ServeOthers(*node, now);
  if (served) return DismissParked(node->holding, now);
  if (phase_.leased_to(node->id) > 0) {
    const bool full = phase_.leased_to(node->id) >= nodes_.MostLeases(*node);
    if (full || !more_to_lease(node->holding)) return answer({.next = Next::kCommit});
    // The node has no idle slot and asked ahead. It should ask again when a slot is idle, and an
    // open poll would prevent that.
    if (request.wanted == 0) return answer({.next = Next::kWait, .when_idle = true});
  }
  parked_early_ = parked_early_ || !caught_up();
  nodes_.Park(*node, std::move(poll));
}

bool RoundEngine::Serve(Node& node, const fleet::LeaseRequest& request, Ticket ticket,
                        TimePoint now) {
  if (!request.trained.empty()) return ServeArrival(node, request, ticket, now);
  if (!node.declined.empty()) return false;
  // Its results are of clients that were taken back, and would spoil a part with new ones.
  if (request.running > 0 && phase_.leased_to(node.id) == 0 && caught_up()) {
    Answer(ticket, fleet::LeaseReply{.next = Next::kCommit});
    return true;
  }
  // Training begins soon. Evaluation tasks are leased together with it, so that no slot is idle at
  // the end of the evaluation.
  if (state_ == State::kPreparing) return false;
  fleet::LeaseReply reply{.next = Next::kWork};
  const TimePoint expires = now + options_.lease_timeout;
  const auto name_only = [&](fleet::Blob& blob) {
    const bool has = std::ranges::find(request.have, blob.digest) != request.have.end();
    if (has) blob = {.digest = blob.digest, .size = blob.size};
    std::erase_if(blob.compact, [&](const fleet::CompactForm& form) {
      return !form.base.IsZero() &&
             std::ranges::find(request.have, form.base) == request.have.end();
    });
  };
  const auto trim = [&](fleet::Blob& blob) {
    name_only(blob);
    std::ranges::for_each(blob.parts, name_only);
  };
  // Lease evaluation first, in even shares: the metrics row waits for it, and the training that
  // follows evens out the slots.
  reply.evaluation = evaluation_.Take(node, nodes_, expires);
  if (reply.evaluation.has_value()) {
    node.tasks_until = now + TaskLimit();
    trim(reply.evaluation->model);
    for (fleet::EvaluationTask& task : reply.evaluation->tasks) {
      if (options_.evaluates_states && fleet::AtClientsPoint(task.kind))
        task.state_version = states_.versions().Current(task.client);
    }
  }
  // Where rounds do not wait for each other, an evaluation does not wait for a client that trains.
  const bool may_train = !live_ || !reply.evaluation.has_value();
  if (may_train && more_to_lease(node.holding))
    reply.training = ServeTraining(node, request, reply, now);
  if (reply.training.has_value()) {
    std::ranges::for_each(reply.training->broadcast.channels, trim);
    for (fleet::OlderModel& older : reply.training->older)
      std::ranges::for_each(older.broadcast.channels, trim);
  }
  if (!reply.training.has_value() && !reply.evaluation.has_value()) return false;
  reply.deletable = states_.TakeDeletable(node.holding, roster_);
  Answer(ticket, std::move(reply));
  return true;
}

std::optional<fleet::TrainingLease> RoundEngine::ServeTraining(Node& node,
                                                               const fleet::LeaseRequest& request,
                                                               fleet::LeaseReply& reply,
                                                               TimePoint now) {
  const uint64_t held = phase_.leased_to(node.id);
  // A step: each client counts on its own, so a node has one at a time.
  const uint64_t most = phase_.live() ? 1 : nodes_.MostLeases(node);
  if (held >= most) {  // others get what was planned for it
    phase_.RemoveFromPlan(node);
    passed_over_ = true;
    return std::nullopt;
  }
  if (held == 0) {
    node.progressed = node.leased_until = now;
    node.waited = {};
  }
  OpenPhase::Handout handout =
      phase_.Take(node, request.wanted, most, now + options_.lease_timeout, now,
                  [&](ClientId client) { return LeaveToOthers(node, client, now); });
  passed_over_ = passed_over_ || handout.passed_over;
  reply.when_idle = handout.when_idle;
  nodes_.LookAgain(node, handout.look_again);
  Record(std::move(handout.record));
  if (handout.lease.has_value()) {
    const Duration limit = LeaseLimit(node, *handout.lease);
    node.leased_until = std::max(node.leased_until + limit, now + LeastLease());
  }
  return std::move(handout.lease);
}

void RoundEngine::ServeParked(Node& node, TimePoint now) {
  if (!node.poll.has_value()) return;
  if (Serve(node, node.poll->request, node.poll->ticket, now)) nodes_.Unpark(node, now);
}

// What one node passes over, a node before it may take. So there may be a second pass.
void RoundEngine::ServeEach(const std::vector<WorkerId>& nodes, TimePoint now) {
  for (int pass = 0; pass < 2; ++pass) {
    passed_over_ = false;
    for (const WorkerId id : nodes) ServeParked(nodes_.At(id), now);
    if (!std::exchange(passed_over_, false)) return;
  }
}

void RoundEngine::ServeParked(TimePoint now) {
  if (state_ == State::kPreparing) return;
  Nodes::Ids waiting;
  if (evaluation_.waits()) {
    waiting = nodes_.parked();
  } else if (state_ == State::kRunning) {
    absl::btree_set<HoldingId> holdings;
    for (const Seat& seat : phase_.seats()) {
      if (phase_.waiting(seat.holding)) holdings.insert(seat.holding);
    }
    for (const HoldingId holding : holdings)
      waiting.insert(nodes_.Of(holding).parked.begin(), nodes_.Of(holding).parked.end());
  }
  ServeEach({waiting.begin(), waiting.end()}, now);
  for (const WorkerId id : phase_.Holders()) {
    if (nodes_.Knows(id)) Dismiss(nodes_.At(id), now);
  }
}

void RoundEngine::ServeHolding(HoldingId holding, TimePoint now) {
  const Nodes::Ids& parked = nodes_.Of(holding).parked;
  if (more_to_lease(holding) || evaluation_.waits(holding))
    ServeEach({parked.begin(), parked.end()}, now);
  DismissParked(holding, now);
}

void RoundEngine::ServeOthers(const Node& node, TimePoint now) {
  const Nodes::Ids& parked = nodes_.central().parked;
  if (node.central_test && evaluation_.central_waits())
    ServeEach({parked.begin(), parked.end()}, now);
  ServeHolding(node.holding, now);
}

void RoundEngine::DismissParked(HoldingId holding, TimePoint now) {
  if (more_to_lease(holding)) return;
  const Nodes::Ids& parked = nodes_.Of(holding).parked;
  for (const WorkerId id : std::vector<WorkerId>(parked.begin(), parked.end()))
    Dismiss(nodes_.At(id), now);
}

void RoundEngine::Dismiss(Node& node, TimePoint now) {
  const bool done = phase_.leased_to(node.id) > 0 && !more_to_lease(node.holding);
  if (!done || !node.poll.has_value() || !node.poll->request.trained.empty()) return;
  Answer(nodes_.Unpark(node, now).ticket, fleet::LeaseReply{.next = Next::kCommit});
}

// ---- heartbeats, releases, uploads

Answered<fleet::HeartbeatReply> RoundEngine::Heartbeat(const fleet::HeartbeatRequest& request,
                                                       TimePoint now) {
  Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return {.answer = {.known = false}, .effects = {}};
  OnHeard(*node, now);
  fleet::HeartbeatReply reply{.stop = state_ == State::kEnded};
  if (reply.stop) nodes_.SetTold(*node);
  if (request.progress > node->progress) {
    node->progress = request.progress;
    node->progressed = now;
  }
  Renew(*node, now);
  if (caught_up()) reply.dropped = phase_.NotHeld(node->id, request.held);
  return {.answer = std::move(reply), .effects = Take()};
}

Effects RoundEngine::Release(const fleet::ReleaseRequest& request, TimePoint now) {
  const Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return {};
  Record(phase_.Release(node->id, request.attempts, absl::StrCat(node->name, " gave them back")));
  evaluation_.Release(node->id, request.tasks);
  if (request.leaving) {
    Lose(node->id, "it left", now);
    Advance(now);
  } else {
    ServeOthers(*node, now);
  }
  return Take();
}

fleet::UploadVerdict RoundEngine::Offer(const fleet::UploadOffer& offer) const {
  if (offer.purpose == fleet::BlobPurpose::kPopulation) {
    return roster_.HasTable(offer.digest) ? fleet::UploadVerdict::kHave
                                          : fleet::UploadVerdict::kSend;
  }
  const Node* node = nodes_.Find(offer.session);
  if (node == nullptr) return fleet::UploadVerdict::kStale;
  // Checked before the round, because an accepted commit stays accepted when its round is over.
  if (offer.commit_id != 0 && offer.commit_id <= node->last_commit)
    return fleet::UploadVerdict::kNotNeeded;
  // A node without leases has nothing that can count: its round is over, or went on without it.
  const bool wanted =
      state_ == State::kRunning && offer.round == phase_.round() && phase_.leased_to(node->id) > 0;
  return wanted ? fleet::UploadVerdict::kSend : fleet::UploadVerdict::kStale;
}

}  // namespace macaw::server
