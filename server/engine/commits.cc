// The calls that decide whether a part counts. A part is accepted whole, if every attempt in it is
// current, or refused whole. Also decides what follows when nodes report that they cannot do the
// work that they were leased.
#include <algorithm>
#include <utility>

#include "core/spelling.h"
#include "core/status.h"
#include "server/engine/part_checks.h"
#include "server/engine/round_engine.h"

namespace macaw::server {

using fleet::Verdict;

Effects RoundEngine::Commit(Ticket ticket, fleet::CommitRequest request,
                            const absl::Status& decoded, TimePoint now) {
  TakeCommit(ticket, std::move(request), decoded, now);
  return Take();
}

void RoundEngine::TakeCommit(Ticket ticket, fleet::CommitRequest request,
                             const absl::Status& decoded, TimePoint now) {
  const auto answer = [&](fleet::CommitReply reply) {
    effects_.orders.emplace_back(DiscardPart{.commit = ticket});
    Answer(ticket, std::move(reply));
  };
  Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return answer({.verdict = Verdict::kRegister, .reason = "unknown session"});
  if (request.commit_id <= node->last_commit) return answer({.verdict = Verdict::kDuplicate});
  if (const absl::Status status = CheckEvaluations(*node, request.evaluations); !status.ok()) {
    evaluation_.DropNode(node->id);
    answer({.verdict = Verdict::kRefused, .reason = std::string(status.message())});
    return ServeOthers(*node, now);
  }
  TakeEvaluations(*node, request.evaluations, now);
  // A worker commits when it is idle. So it does not work on any task that it has not reported yet.
  evaluation_.DropNode(node->id);
  fleet::CommitReply reply{.verdict = Verdict::kAccepted};
  // An honest worker sends a part that names nobody when all its clients were taken back before it
  // began them. Nothing of it can count, and it is no event.
  const bool has_part = request.part.has_value() && NamesAnybody(*request.part);
  bool adding = false;
  if (state_ != State::kEnded && has_part) {
    reply = Judge(*node, *request.part, decoded);
    if (reply.verdict == Verdict::kAccepted) {
      adding = !request.part->included.empty();
      Accept(ticket, *node, request.commit_id, *std::move(request.part), now);
    } else {
      TurnDown(*node, request.commit_id, *request.part, reply);
    }
  }
  if (state_ == State::kEnded) reply = {.verdict = Verdict::kStale, .reason = "the run is over"};
  if (reply.verdict == Verdict::kAccepted) {
    node->last_commit = request.commit_id;
  }
  // The call with a sum is answered by PartAdded.
  if (!adding || reply.verdict != Verdict::kAccepted) answer(std::move(reply));
  ServeOthers(*node, now);
  Advance(now);
}

bool RoundEngine::Leases(SessionId session, const fleet::Part& part) const {
  const Node* const node = nodes_.Find(session);
  return node != nullptr && IsOpen(part) && phase_.Judge(node->id, AttemptsOf(part)).ok();
}

uint64_t RoundEngine::LeasedTo(SessionId session) const {
  const Node* const node = nodes_.Find(session);
  return node != nullptr ? phase_.leased_to(node->id) : 0;
}

fleet::CommitReply RoundEngine::Judge(const Node& node, const fleet::Part& part,
                                      const absl::Status& decoded) const {
  const auto turned_down = [](Verdict verdict, const absl::Status& why) {
    return fleet::CommitReply{.verdict = verdict, .reason = std::string(why.message())};
  };
  if (!IsOpen(part)) {
    return turned_down(Verdict::kStale,
                       absl::FailedPreconditionError("that round and phase is not open"));
  }
  if (const absl::Status status = phase_.Judge(node.id, AttemptsOf(part)); !status.ok()) {
    return turned_down(absl::IsInvalidArgument(status) ? Verdict::kRefused : Verdict::kStale,
                       status);
  }
  if (!decoded.ok()) return turned_down(Verdict::kRefused, decoded);
  if (const absl::Status status = CheckPart(options_.run, states_.keeps(), phase_, part);
      !status.ok()) {
    return turned_down(Verdict::kRefused, status);
  }
  return {.verdict = Verdict::kAccepted};
}

void RoundEngine::TurnDown(const Node& node, uint64_t commit_id, const fleet::Part& part,
                           const fleet::CommitReply& why) {
  Record(log::TurnedDown{.round = part.round,
                         .phase = part.phase,
                         .node = node.id,
                         .commit = commit_id,
                         .stale = why.verdict == Verdict::kStale,
                         .why = why.reason});
  // Nothing of the part counts, so the clients still leased to this worker are queued again.
  if (IsOpen(part)) {
    Record(phase_.Release(node.id, AttemptsOf(part),
                          absl::StrCat("part of ", node.name, " turned down")));
  }
}

void RoundEngine::Accept(Ticket ticket, Node& node, uint64_t commit_id, fleet::Part part,
                         TimePoint now) {
  part = WithoutDoubtful(node, std::move(part), now);
  if (state_ == State::kEnded) return;  // no node can read a state
  // Others get the work of a node that does none, if there are others. It has shown that it works
  // only once a client of it counts.
  if (!part.included.empty()) {
    node.on_trial = false;
  } else if (nodes_.Of(node.holding).members.size() > 1) {
    node.on_trial = true;
  }
  node.shown = std::max<uint64_t>(node.shown, part.included.size());
  speeds_.Learn(node.id, part, phase_);
  for (const fleet::ClientRecord& record : part.included) {
    if (record.has_state) states_.versions().Stage(record.attempt);
  }
  const bool has_sum = !part.included.empty();
  log::Accepted accepted = phase_.Accept(node, commit_id, part);
  Record(
      std::move(accepted),
      JournalPart{
          .node = node.id, .node_name = node.name, .commit = commit_id, .part = std::move(part)});
  if (!has_sum) return;
  phase_.Adding();
  effects_.orders.emplace_back(AddPart{.commit = ticket});
}

Effects RoundEngine::PartAdded(Ticket ticket, const absl::Status& status, TimePoint now) {
  phase_.Added();
  if (!status.ok()) {
    Answer(ticket, fleet::CommitReply{.verdict = Verdict::kRefused,
                                      .reason = std::string(status.message())});
    Fail(Annotate(status, "an accepted part could not be added"));
    return Take();
  }
  Answer(ticket, fleet::CommitReply{.verdict = Verdict::kAccepted});
  BeginPhaseAgain(now);
  Advance(now);
  return Take();
}

// ---- trouble

Remedy RoundEngine::RemedyFor(Trouble trouble) const {
  const HoldingId holding = roster_.HoldingOf(trouble.client);
  const Nodes::Team& team = nodes_.Of(holding);
  trouble.candidates = static_cast<uint32_t>(team.members.size());
  if (trouble.kind == Trouble::Kind::kLeftOut)
    trouble.candidates -= static_cast<uint32_t>(team.declining);
  trouble.owned = !roster_.owner_of(holding).empty();
  return policy_.OnTrouble(trouble);
}

fleet::Part RoundEngine::WithoutDoubtful(const Node& node, fleet::Part part, TimePoint now) {
  std::vector<Attempt> unreadable, elsewhere;
  std::vector<ClientId> lost;
  std::erase_if(part.left_out, [&](const fleet::LeftOut& left) {
    if (state_ == State::kEnded) return false;
    const ClientId client = left.attempt.client;
    const bool state = left.reason == fleet::LeftOutReason::kState;
    const TimePoint until = now + LeastLease();
    const Remedy remedy = RemedyFor(state ? troubles_.StateUnreadable(node.name, client, until)
                                          : troubles_.LeftOut(node.name, client, until));
    if (remedy == Remedy::kEndRun) Fail(Unreadable(client, left.message));
    if (remedy == Remedy::kLoseState && MayLoseState(client)) {
      lost.push_back(client);
    } else if (remedy != Remedy::kTryAgain) {
      return false;
    }
    (state ? unreadable : elsewhere).push_back(left.attempt);
    return true;
  });
  if (!lost.empty()) {
    LoseStatesOf(std::move(lost), node.name, "it cannot read them");
    GiveUpTasksOfStates(node.holding, node.name);
  }
  Record(phase_.Release(node.id, unreadable, absl::StrCat(node.name, " cannot read their states")));
  Record(phase_.Release(node.id, elsewhere, absl::StrCat(node.name, " has left them out")));
  return part;
}

bool RoundEngine::LeaveToOthers(const Node& node, ClientId client, TimePoint now) const {
  const std::optional<TimePoint> until = troubles_.Avoids(node.name, client);
  if (!until.has_value()) return false;
  return std::ranges::any_of(nodes_.Of(node.holding).members, [&](WorkerId id) {
    const Node& other = nodes_.At(id);
    const bool may = other.declined.empty() && !troubles_.Avoids(other.name, client).has_value();
    return may && (now < *until || phase_.leased_to(id) > 0);
  });
}

void RoundEngine::OnDeaths(const std::string& node, const std::vector<Attempt>& died,
                           TimePoint now) {
  for (const Trouble& trouble : troubles_.Died(node, died)) {
    if (phase_.Find(trouble.client) == nullptr) continue;
    Record(log::Died{.round = phase_.round(), .client = trouble.client, .deaths = trouble.times});
    const std::string what =
        absl::StrCat("its worker died while it was trained, ", Counted(trouble.times, "time"),
                     " in round ", phase_.round().value);
    switch (RemedyFor(trouble)) {
      case Remedy::kTryAgain:
        break;
      case Remedy::kGiveUpClient:
      case Remedy::kLoseState:
        Record(phase_.DoWithout({log::GivenUp{.attempt = {.client = trouble.client},
                                              .reason = fleet::LeftOutReason::kFailed,
                                              .message = what}}));
        DismissParked(roster_.HoldingOf(trouble.client), now);
        break;
      case Remedy::kEndRun:
        return Fail(absl::AbortedError(
            absl::StrCat("client ", trouble.client.value, ": ", what,
                         ": look at its data and at the worker's log, or hold it out ([data] "
                         "heldout_clients)")));
    }
  }
}

}  // namespace macaw::server
