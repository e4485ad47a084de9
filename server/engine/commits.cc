// The only calls that count anything: a part is accepted whole, if every attempt in it is current,
// or not at all.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "server/engine/round_engine.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using fleet::Verdict;

// A result is bounded by the work that was handed out: a rule may walk a client's rows more often
// than [local] says, but not this many times as often.
constexpr double kMostPasses = 1000;
constexpr double kLargestMetric = 1e50;  // of a client's sums; a float32 loss is below 1e39
constexpr double kMostRows = 1e15;       // of an evaluation whose rows only the worker knows

// Seconds as a worker reports them, but within what the arithmetic of times can hold.
double Seconds(double reported) { return std::min(reported, 1e8); }

std::vector<Attempt> AttemptsOf(const fleet::Part& part) {
  std::vector<Attempt> attempts;
  attempts.reserve(part.included.size() + part.left_out.size());
  for (const fleet::ClientRecord& record : part.included) attempts.push_back(record.attempt);
  for (const fleet::LeftOut& left : part.left_out) attempts.push_back(left.attempt);
  return attempts;
}

// Of its slots' time, as its worker reports it.
double SecondsOf(const fleet::Part& part) {
  double seconds = 0;
  for (const fleet::ClientRecord& record : part.included)
    seconds += record.state_seconds + record.load_seconds + record.train_seconds;
  return seconds;
}

}  // namespace

absl::Status RoundEngine::CheckEvaluation(WorkerId worker,
                                          const fleet::EvaluationResult& result) const {
  const fleet::EvaluationTask* task = evaluation_open_ ? evaluation_.Find(worker, result) : nullptr;
  if (task == nullptr) return absl::OkStatus();  // late: it counts nothing
  const bool reads_states = task->kind == fleet::EvaluationKind::kStateDigest ||
                            (task->kind == fleet::EvaluationKind::kClientTest && options_.stateful);
  if (!result.failure.empty()) {
    return reads_states ? absl::OkStatus()
                        : absl::InvalidArgumentError(absl::StrCat(
                              "an evaluation after round ", result.round.value,
                              " that reads no client state reports that one cannot be read"));
  }
  if (task->kind == fleet::EvaluationKind::kStateDigest) {
    return result.digest.IsZero() ? absl::InvalidArgumentError("a digest of states is missing")
                                  : absl::OkStatus();
  }
  const bool counted = training::CountsFit(training::SchemaFor(options_.run.task), result.sums);
  // How many tokens some rows have is not known here, nor how many test rows a client has.
  const bool known =
      task->kind != fleet::EvaluationKind::kClientTest && options_.run.task != TaskKind::kNextToken;
  const double most = known ? static_cast<double>(task->end - task->begin) : kMostRows;
  if (counted && (known ? result.sums[0] == most : result.sums[0] <= most)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("an evaluation after round ", result.round.value,
                                                 " does not report the rows it was asked for"));
}

absl::Status RoundEngine::CheckWork(const fleet::ClientRecord& record,
                                    const scheduler::CohortEntry& entry) const {
  const training::MetricSchema& schema = training::SchemaFor(options_.run.task);
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("client ", record.attempt.client.value, " reports ", why));
  };
  const auto bounded = [](double sum) { return std::abs(sum) <= kLargestMetric; };  // no NaN
  for (const std::vector<double>* sums : {&record.sums, &record.personal_sums}) {
    if (sums == &record.personal_sums && sums->empty()) continue;  // it keeps no model
    if (sums->size() != schema.sums.size())
      return refuse(absl::StrCat(sums->size(), " metric sums, the task has ", schema.sums.size()));
    if (!training::CountsFit(schema, *sums) || !std::ranges::all_of(*sums, bounded))
      return refuse("metrics that no examples can give");
  }
  const double rows = std::max<double>(record.examples, 1);
  const uint64_t batch = options_.run.local.batch_size;
  const double planned =
      static_cast<double>(entry.steps) * (batch > 0 ? static_cast<double>(batch) : rows);
  const double passes = kMostPasses * (1 + planned / rows);
  const double once = options_.run.task == TaskKind::kNextToken && !roster_.tokens().empty()
                          ? std::max<double>(roster_.tokens()[record.attempt.client.value], 1)
                          : rows;
  const double personal = record.personal_sums.empty() ? 0 : record.personal_sums[0];
  if (record.sums[0] > passes * once || personal > passes * once ||
      static_cast<double>(record.steps) > kMostPasses * (1 + static_cast<double>(entry.steps))) {
    return refuse("more work than it was leased");
  }
  return absl::OkStatus();
}

absl::Status RoundEngine::CheckRecords(const fleet::Part& part) const {
  for (const fleet::ClientRecord& record : part.included) {
    const scheduler::CohortEntry* entry = FindEntry(record.attempt.client);
    if (entry == nullptr || record.multiplicity != entry->multiplicity ||
        record.weight != WeightOf(record.attempt.client)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "client ", record.attempt.client.value, " has another weight than it was leased with"));
    }
    if (record.examples != roster_.rows()[record.attempt.client.value]) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", record.attempt.client.value,
                       " reports another number of examples than it has"));
    }
    if (record.has_state && !options_.stateful) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", record.attempt.client.value,
                       " reports a state, but the run's algorithm keeps none"));
    }
    MACAW_RETURN_IF_ERROR(CheckWork(record, *entry));
  }
  for (const fleet::LeftOut& left : part.left_out) {
    if (left.reason == fleet::LeftOutReason::kState && !options_.stateful) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", left.attempt.client.value,
                       " is left out for its state, but the run's algorithm keeps none"));
    }
  }
  if (part.broadcast != broadcast_.digest)
    return absl::InvalidArgumentError("it was trained from another broadcast");
  return absl::OkStatus();
}

void RoundEngine::LearnSpeed(const Worker& worker, const fleet::Part& part) {
  for (const fleet::ClientRecord& record : part.included) {
    const scheduler::CohortEntry* entry = FindEntry(record.attempt.client);
    if (entry == nullptr) continue;
    Estimates().Observe(worker.id, *entry,
                        {.state_seconds = Seconds(record.state_seconds),
                         .load_seconds = Seconds(record.load_seconds),
                         .train_seconds = Seconds(record.train_seconds)});
  }
}

void RoundEngine::NoteTurns(const Worker& worker, const fleet::Part& part) {
  for (const fleet::ClientRecord& record : part.included) {
    const auto leased = leased_at_.find(record.attempt.client);
    if (leased == leased_at_.end()) continue;
    report_.turns.push_back({.client = record.attempt.client,
                             .worker = worker.id,
                             .slot = record.slot,
                             .began = leased->second + FromSeconds(Seconds(record.began_after)),
                             .state_seconds = Seconds(record.state_seconds),
                             .load_seconds = Seconds(record.load_seconds),
                             .train_seconds = Seconds(record.train_seconds),
                             .steps = record.steps});
  }
}

fleet::CommitReply RoundEngine::Accept(Ticket ticket, Worker& worker, uint64_t commit_id,
                                       const fleet::Part& part, const absl::Status& decoded,
                                       bool& adding) {
  const std::vector<Attempt> attempts = AttemptsOf(part);
  const bool current =
      state_ == State::kRunning && part.round == order_.round && part.phase == order_.phase;
  const auto turn_down = [&](Verdict verdict, const absl::Status& why) {
    host_.Record(log::TurnedDown{.round = part.round,
                                 .phase = part.phase,
                                 .node = worker.id,
                                 .commit = commit_id,
                                 .stale = verdict == Verdict::kStale,
                                 .why = std::string(why.message())});
    // Nothing of the part counts, so what is still leased to this worker has to be trained again.
    if (current)
      Requeue(table_.Release(worker.id, attempts),
              absl::StrCat("part of ", worker.name, " turned down"));
    return fleet::CommitReply{.verdict = verdict, .reason = std::string(why.message())};
  };
  if (!current)
    return turn_down(Verdict::kStale,
                     absl::FailedPreconditionError("that round and phase is not open"));
  if (const absl::Status status = table_.Judge(worker.id, attempts); !status.ok()) {
    return turn_down(absl::IsInvalidArgument(status) ? Verdict::kRefused : Verdict::kStale, status);
  }
  if (!decoded.ok()) return turn_down(Verdict::kRefused, decoded);
  if (const absl::Status status = CheckRecords(part); !status.ok())
    return turn_down(Verdict::kRefused, status);
  if (FailOverState(part.left_out))
    return {.verdict = Verdict::kStale, .reason = "the run is over"};

  std::vector<Attempt> included(attempts.begin(),
                                attempts.begin() + static_cast<long>(part.included.size()));
  std::vector<Attempt> left_out(attempts.begin() + static_cast<long>(part.included.size()),
                                attempts.end());
  LearnSpeed(worker, part);
  NoteTurns(worker, part);
  table_.Count(included);
  table_.GiveUp(left_out);
  report_.records.insert(report_.records.end(), part.included.begin(), part.included.end());
  report_.left_out.insert(report_.left_out.end(), part.left_out.begin(), part.left_out.end());
  for (const fleet::ClientRecord& record : part.included) {
    if (record.has_state) versions_.Stage(record.attempt, worker.id);
  }
  const bool adds = !included.empty();
  host_.Record(log::Accepted{.round = part.round,
                             .phase = part.phase,
                             .node = worker.id,
                             .commit = commit_id,
                             .included = std::move(included),
                             .given_up = log::GivenUpOf(part.left_out),
                             .sums = part.sums.digest,
                             .seconds = SecondsOf(part)});
  if (adds) {
    adding = true;
    ++adding_;
    host_.Add(ticket);
  }
  return {.verdict = Verdict::kAccepted};
}

void RoundEngine::Commit(Ticket ticket, const fleet::CommitRequest& request,
                         const absl::Status& decoded, TimePoint now) {
  const auto answer = [&](fleet::CommitReply reply) {
    host_.Discard(ticket);
    host_.AnswerCommit(ticket, std::move(reply));
  };
  Worker* worker = Seen(request.session, now);
  if (worker == nullptr)
    return answer({.verdict = Verdict::kRegister, .reason = "unknown session"});
  if (request.commit_id <= worker->last_commit) return answer({.verdict = Verdict::kDuplicate});
  for (const fleet::EvaluationResult& result : request.evaluations) {
    if (const absl::Status status = CheckEvaluation(worker->id, result); !status.ok()) {
      evaluation_.DropWorker(worker->id);
      return answer({.verdict = Verdict::kRefused, .reason = std::string(status.message())});
    }
  }
  if (FailOverState(worker->id, request.evaluations)) {
    return answer({.verdict = Verdict::kStale, .reason = "the run is over"});
  }
  for (const fleet::EvaluationResult& result : request.evaluations) {
    if (evaluation_open_) evaluation_.Complete(worker->id, result);
  }
  // A worker commits when it is idle: a task that it still has not reported is not being worked on.
  evaluation_.DropWorker(worker->id);
  fleet::CommitReply reply{.verdict = Verdict::kAccepted};
  bool adding = false;
  if (request.part.has_value())
    reply = Accept(ticket, *worker, request.commit_id, *request.part, decoded, adding);
  if (reply.verdict == Verdict::kAccepted) worker->last_commit = request.commit_id;
  if (!adding)
    answer(std::move(reply));  // else PartAdded answers: the sum is acknowledged once it is in
  ServeAfterCommit(*worker, now);
  Advance(now);
}

void RoundEngine::PartAdded(Ticket ticket, const absl::Status& status, TimePoint now) {
  --adding_;
  if (!status.ok()) {
    host_.AnswerCommit(ticket,
                       {.verdict = Verdict::kRefused, .reason = std::string(status.message())});
    return Fail(Annotate(status, "an accepted part could not be added"));
  }
  host_.AnswerCommit(ticket, {.verdict = Verdict::kAccepted});
  Advance(now);
}

}  // namespace macaw::server
