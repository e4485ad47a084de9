// The calls that decide whether a part counts. A part is accepted whole, if every attempt in it is
// current, or refused whole. Also decides what follows when nodes report that they cannot do the
// work that they were leased.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "server/engine/part_checks.h"
#include "server/engine/round_engine.h"

namespace macaw::server {

using fleet::Verdict;

void RoundEngine::Commit(Ticket ticket, const fleet::CommitRequest& request,
                         const absl::Status& decoded, TimePoint now) {
  const auto answer = [&](fleet::CommitReply reply) {
    host_.Discard(ticket);
    host_.AnswerCommit(ticket, std::move(reply));
  };
  Node* node = nodes_.Hear(request.session, now);
  if (node == nullptr) return answer({.verdict = Verdict::kRegister, .reason = "unknown session"});
  if (request.commit_id <= node->last_commit) return answer({.verdict = Verdict::kDuplicate});
  if (const absl::Status status = CheckEvaluations(*node, request.evaluations); !status.ok()) {
    evaluation_.DropNode(node->id);
    return answer({.verdict = Verdict::kRefused, .reason = std::string(status.message())});
  }
  TakeEvaluations(*node, request.evaluations);
  // A worker commits when it is idle. So it does not work on any task that it has not reported yet.
  evaluation_.DropNode(node->id);
  fleet::CommitReply reply = Judge(ticket, *node, request, decoded);
  if (state_ == State::kEnded) reply = {.verdict = Verdict::kStale, .reason = "the run is over"};
  const bool adding = reply.verdict == Verdict::kAccepted && request.part.has_value() &&
                      !request.part->included.empty();
  if (reply.verdict == Verdict::kAccepted) {
    node->last_commit = request.commit_id;
    if (request.part.has_value()) node->on_trial = false;
  }
  if (!adding)
    answer(std::move(reply));  // otherwise PartAdded answers it, once the sum has been added
  ServeAfterCommit(*node, now);
  Advance(now);
}

fleet::CommitReply RoundEngine::Judge(Ticket ticket, Node& node,
                                      const fleet::CommitRequest& request,
                                      const absl::Status& decoded) {
  if (state_ == State::kEnded || !request.part.has_value()) return {.verdict = Verdict::kAccepted};
  const fleet::Part& part = *request.part;
  const std::vector<Attempt> attempts = AttemptsOf(part);
  const bool current =
      state_ == State::kRunning && part.round == phase_.round() && part.phase == phase_.phase();
  const auto turn_down = [&](Verdict verdict, const absl::Status& why) {
    host_.Record(log::TurnedDown{.round = part.round,
                                 .phase = part.phase,
                                 .node = node.id,
                                 .commit = request.commit_id,
                                 .stale = verdict == Verdict::kStale,
                                 .why = std::string(why.message())});
    // Nothing of the part counts, so the clients still leased to this worker are queued again.
    if (current) {
      Record(
          phase_.Release(node.id, attempts, absl::StrCat("part of ", node.name, " turned down")));
    }
    return fleet::CommitReply{.verdict = verdict, .reason = std::string(why.message())};
  };
  if (!current)
    return turn_down(Verdict::kStale,
                     absl::FailedPreconditionError("that round and phase is not open"));
  if (const absl::Status status = phase_.Judge(node.id, attempts); !status.ok()) {
    return turn_down(absl::IsInvalidArgument(status) ? Verdict::kRefused : Verdict::kStale, status);
  }
  if (!decoded.ok()) return turn_down(Verdict::kRefused, decoded);
  if (const absl::Status status = CheckPart(options_.run, states_.keeps(), phase_, part);
      !status.ok()) {
    return turn_down(Verdict::kRefused, status);
  }
  const bool unreadable = std::ranges::any_of(part.left_out, [](const fleet::LeftOut& left) {
    return left.reason == fleet::LeftOutReason::kState;
  });
  if (unreadable) {
    const fleet::Part readable = WithoutUnreadable(node, part);
    if (state_ != State::kEnded) Accept(ticket, node, request.commit_id, readable);
  } else {
    Accept(ticket, node, request.commit_id, part);
  }
  return {.verdict = Verdict::kAccepted};
}

void RoundEngine::Accept(Ticket ticket, const Node& node, uint64_t commit_id,
                         const fleet::Part& part) {
  speeds_.Learn(node.id, part, phase_);
  for (const fleet::ClientRecord& record : part.included) {
    if (record.has_state) states_.versions().Stage(record.attempt);
  }
  host_.Record(phase_.Accept(node, commit_id, part));
  if (part.included.empty()) return;
  phase_.Adding();
  host_.Add(ticket);
}

void RoundEngine::PartAdded(Ticket ticket, const absl::Status& status, TimePoint now) {
  phase_.Added();
  if (!status.ok()) {
    host_.AnswerCommit(ticket,
                       {.verdict = Verdict::kRefused, .reason = std::string(status.message())});
    return Fail(Annotate(status, "an accepted part could not be added"));
  }
  host_.AnswerCommit(ticket, {.verdict = Verdict::kAccepted});
  BeginPhaseAgain(now);
  Advance(now);
}

absl::Status RoundEngine::CheckEvaluations(
    const Node& node, const std::vector<fleet::EvaluationResult>& results) const {
  for (const fleet::EvaluationResult& result : results) {
    const fleet::EvaluationTask* task = evaluation_.Find(node.id, result);
    if (task == nullptr) continue;  // the result is late and does not count
    MACAW_RETURN_IF_ERROR(CheckEvaluation(options_.run, states_.keeps(), *task, result));
  }
  return absl::OkStatus();
}

// ---- trouble

Remedy RoundEngine::RemedyFor(Trouble trouble) const {
  const HoldingId holding = roster_.HoldingOf(trouble.client);
  trouble.candidates = static_cast<uint32_t>(nodes_.Of(holding).members.size());
  trouble.owned = !roster_.owner_of(holding).empty();
  return policy_.OnTrouble(trouble);
}

void RoundEngine::TakeEvaluations(const Node& node,
                                  const std::vector<fleet::EvaluationResult>& results) {
  for (const fleet::EvaluationResult& result : results) {
    const fleet::EvaluationTask* task = evaluation_.Find(node.id, result);
    if (task == nullptr) continue;  // late; the state version may have been replaced meanwhile
    if (result.failure.empty()) {
      evaluation_.Complete(node.id, result);
      continue;
    }
    const bool digest = task->kind == fleet::EvaluationKind::kStateDigest;
    const ClientId client = digest ? task->states.front().client : task->client;
    switch (RemedyFor(troubles_.StateUnreadable(node.name, client))) {
      case Remedy::kTryAgain:
        evaluation_.Refuse(node.id, result);
        break;
      case Remedy::kGiveUpClient:
        evaluation_.GiveUp(node.id, result);
        break;
      case Remedy::kEndRun:
        return Fail(digest ? absl::DataLossError(result.failure)
                           : Unreadable(client, result.failure));
    }
  }
}

fleet::Part RoundEngine::WithoutUnreadable(const Node& node, fleet::Part part) {
  std::vector<Attempt> elsewhere;
  std::erase_if(part.left_out, [&](const fleet::LeftOut& left) {
    if (left.reason != fleet::LeftOutReason::kState || state_ == State::kEnded) return false;
    const ClientId client = left.attempt.client;
    const Remedy remedy = RemedyFor(troubles_.StateUnreadable(node.name, client));
    if (remedy == Remedy::kEndRun) Fail(Unreadable(client, left.message));
    if (remedy == Remedy::kTryAgain) elsewhere.push_back(left.attempt);
    return remedy == Remedy::kTryAgain;
  });
  Record(phase_.Release(node.id, elsewhere, absl::StrCat(node.name, " cannot read their states")));
  return part;
}

void RoundEngine::OnDeaths(const std::string& node, const std::vector<Attempt>& died) {
  for (const Trouble& trouble : troubles_.Died(node, died)) {
    if (phase_.Find(trouble.client) == nullptr) continue;
    host_.Record(
        log::Died{.round = phase_.round(), .client = trouble.client, .deaths = trouble.times});
    const std::string what =
        absl::StrCat("client ", trouble.client.value, " was being trained when its worker died, ",
                     trouble.times, " times in round ", phase_.round().value);
    switch (RemedyFor(trouble)) {
      case Remedy::kTryAgain:
        break;
      case Remedy::kGiveUpClient:
        Record(phase_.DoWithout({log::GivenUp{.attempt = {.client = trouble.client},
                                              .reason = fleet::LeftOutReason::kFailed,
                                              .message = what}}));
        break;
      case Remedy::kEndRun:
        return Fail(absl::AbortedError(
            absl::StrCat(what,
                         ": look at its data and at the worker's log, or hold it out ([data] "
                         "heldout_clients)")));
    }
  }
}

}  // namespace macaw::server
