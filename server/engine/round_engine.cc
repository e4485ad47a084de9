#include "server/engine/round_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "training/api/metrics.h"

namespace macaw::server {
namespace {

using fleet::Next;
using fleet::Verdict;

// Only a lease that is asked for again soon is worth parking; this bounds what a request can ask.
constexpr Duration kLongestPoll = std::chrono::seconds(60);
constexpr uint64_t kMostTasks = 8192;  // a lease and its answer must fit a message
constexpr size_t kForecast = 64;       // clients named ahead per heartbeat

std::vector<Attempt> AttemptsOf(const fleet::Part& part) {
  std::vector<Attempt> attempts;
  attempts.reserve(part.included.size() + part.left_out.size());
  for (const fleet::ClientRecord& record : part.included) attempts.push_back(record.attempt);
  for (const fleet::LeftOut& left : part.left_out) attempts.push_back(left.attempt);
  return attempts;
}

std::string ToString(const NumericProfile& profile) {
  return absl::StrCat("(", profile.trainer, ", ", profile.instruction_set, ", ", profile.libraries,
                      ")");
}

template <typename T>
void SortByClient(std::vector<T>& records) {
  std::sort(records.begin(), records.end(),
            [](const T& a, const T& b) { return a.attempt.client < b.attempt.client; });
}

}  // namespace

RoundEngine::RoundEngine(EngineOptions options, const scheduler::Scheduler& scheduler,
                         EngineHost& host)
    : options_(std::move(options)),
      scheduler_(scheduler),
      host_(host),
      fences_(options_.epoch),
      completed_(options_.completed) {}

bool EvaluationDue(const RunConfig& run, Round round) {
  const uint32_t every = run.evaluation.every;
  return round.value == run.rounds || (every > 0 && round.value % every == 0);
}

void RoundEngine::Abort(absl::Status why) { Fail(std::move(why)); }

// ---- workers
// ---------------------------------------------------------------------------------------------------

absl::Status RoundEngine::CheckNode(const fleet::RegisterRequest& request,
                                    const std::vector<uint32_t>& examples) const {
  const auto refuse = [&](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker \"", request.name, "\" cannot join: ", why));
  };
  if (request.name.empty() || request.slots == 0) return refuse("it has no name or no slots");
  const RunConfig& run = options_.run;
  if (request.input_shape != run.model.input_shape) {
    return refuse("its examples have another shape than the run's model.input_shape");
  }
  if (run.task == TaskKind::kClassification && request.classes != run.model.classes) {
    return refuse(absl::StrCat("its data has ", request.classes, " classes, the run's model ",
                               run.model.classes));
  }
  if (run.clients != 0 && request.clients != run.clients) {
    return refuse(
        absl::StrCat("its data has ", request.clients, " clients, the run ", run.clients));
  }
  if (options_.data_digest.has_value() && *options_.data_digest != request.data_digest) {
    return refuse(
        "its data (files, partition or seed) differs from what the checkpoint was trained on");
  }
  if (options_.profile.has_value() && *options_.profile != request.profile) {
    return refuse(absl::StrCat("its numeric profile ", ToString(request.profile),
                               " differs from the checkpoint's ", ToString(*options_.profile),
                               ", so the run would not be the same"));
  }
  if (!first_node_.has_value()) {
    return examples.size() == request.clients && request.clients > 0
               ? absl::OkStatus()
               : refuse(absl::StrCat("it reports ", request.clients,
                                     " clients but sample counts of ", examples.size()));
  }
  if (request.data_digest != first_node_->data_digest ||
      request.examples.digest != first_node_->examples.digest ||
      request.clients != first_node_->clients) {
    return refuse(absl::StrCat("its data differs from that of worker \"", first_node_->name,
                               "\" (other files, partition or seed)"));
  }
  if (request.central_test_rows != first_node_->central_test_rows)
    return refuse("its test set has another size");
  if (request.profile != first_node_->profile) {
    return refuse(absl::StrCat("its numeric profile ", ToString(request.profile),
                               " differs from the run's ", ToString(first_node_->profile),
                               ", so its results would not be reproducible"));
  }
  return absl::OkStatus();
}

absl::StatusOr<fleet::RegisterReply> RoundEngine::Register(const fleet::RegisterRequest& request,
                                                           std::vector<uint32_t> examples,
                                                           TimePoint now) {
  MACAW_RETURN_IF_ERROR(CheckNode(request, examples));
  fleet::RegisterReply reply{.epoch = options_.epoch,
                             .run = options_.run,
                             .population = request.clients,
                             .lease_timeout = options_.lease_timeout,
                             .heartbeat_every = options_.lease_timeout / 3};
  if (replaced_.contains({request.name, request.incarnation})) {
    return absl::FailedPreconditionError(absl::StrCat("another process runs under the name \"",
                                                      request.name,
                                                      "\"; give every worker its own (--name)"));
  }
  for (auto& [session, worker] : workers_) {
    if (worker.name != request.name) continue;
    if (worker.incarnation == request.incarnation) {  // the answer was lost on the way
      worker.last_seen = now;
      reply.session = session;
      return reply;
    }
    replaced_.insert({worker.name, worker.incarnation});
    Lose(session, "its process was replaced", now);
    break;
  }
  CountDeaths(request.died_running);
  if (!first_node_.has_value()) {
    first_node_ = request;
    first_node_->died_running.clear();
    examples_ = std::move(examples);
  }
  Worker worker{.session = WorkerId(next_session_++),
                .name = request.name,
                .incarnation = request.incarnation,
                .slots = request.slots,
                .last_seen = now};
  reply.session = worker.session;
  host_.Note({"worker_joined",
              {{"worker", worker.name},
               {"session", int64_t{worker.session.value}},
               {"slots", int64_t{worker.slots}}}});
  workers_.emplace(worker.session, std::move(worker));
  if (state_ == State::kGathering && workers_.size() >= options_.workers) Begin(now);
  return reply;
}

RoundEngine::Worker* RoundEngine::Seen(WorkerId session, TimePoint now) {
  const auto it = workers_.find(session);
  if (it == workers_.end()) return nullptr;
  it->second.last_seen = now;
  return &it->second;
}

void RoundEngine::Lose(WorkerId session, const std::string& why, TimePoint now) {
  const auto it = workers_.find(session);
  if (it == workers_.end()) return;
  Worker worker = std::move(it->second);
  workers_.erase(it);
  if (worker.parked.has_value())
    host_.AnswerLease(worker.parked->ticket, {.next = Next::kRegister});
  host_.Note({"worker_lost", {{"worker", worker.name}, {"why", why}}});
  Requeue(table_.DropWorker(session), absl::StrCat(worker.name, " lost"));
  dispatch_.RemoveWorker(session);
  evaluation_.DropWorker(session);
  ServeParked(now);
}

void RoundEngine::CountDeaths(const std::vector<Attempt>& died) {
  for (const Attempt& attempt : died) {
    const bool known =
        attempt.fence.epoch == options_.epoch && FindEntry(attempt.client) != nullptr;
    if (!known || !died_.insert(attempt.fence).second) continue;
    const uint32_t deaths = ++deaths_[attempt.client];
    host_.Note(
        {"died_running",
         {{"client", static_cast<int64_t>(attempt.client.value)}, {"deaths", int64_t{deaths}}}});
    if (deaths >= options_.max_deaths) {
      Fail(absl::AbortedError(absl::StrCat(
          "client ", attempt.client.value, " was being trained when its worker died, ", deaths,
          " times in round ", order_.round.value,
          ": look at its data and at the worker's log, or hold it out ([data] heldout_clients)")));
    }
  }
}

// ---- rounds
// ------------------------------------------------------------------------------------------------------

void RoundEngine::Begin(TimePoint now) {
  auto sampler = scheduler::MakeSampler(options_.run.cohort, examples_);
  if (!sampler.ok()) return Fail(sampler.status());
  sampler_ = *std::move(sampler);
  if (options_.evaluate_first.has_value())
    OpenEvaluation(Round(completed_), *options_.evaluate_first);
  if (evaluation_open_ && options_.evaluation_gates) {
    state_ = State::kDraining;
    return Advance(now);
  }
  NextRound(now);
}

void RoundEngine::NextRound(TimePoint now) {
  if (completed_ < options_.run.rounds) return OpenRound(Round(completed_ + 1));
  state_ = State::kDraining;
  Advance(now);
}

void RoundEngine::OpenRound(Round round) {
  cohort_ = sampler_->Sample(round);
  deaths_.clear();
  died_.clear();
  order_ = {.round = round};
  OpenPhase(Phase(0));
}

void RoundEngine::OpenPhase(Phase phase) {
  order_.phase = phase;
  if (phase.value > 0) {  // on the first phase's cohort, less the clients left out
    const std::vector<ClientId> remaining = table_.Remaining();
    std::erase_if(cohort_.entries, [&](const scheduler::CohortEntry& entry) {
      return !std::binary_search(remaining.begin(), remaining.end(), entry.client);
    });
  }
  std::vector<ClientId> clients;
  clients.reserve(cohort_.entries.size());
  order_.grid = {
      .max_weight = 0, .total_weight = 0, .max_multiplicity = 0, .total_multiplicity = 0};
  for (const scheduler::CohortEntry& entry : cohort_.entries) {
    clients.push_back(entry.client);
    const double weight = WeightOf(entry.client) * entry.multiplicity;
    order_.grid.max_weight = std::max(order_.grid.max_weight, weight);
    order_.grid.total_weight += weight;
    order_.grid.max_multiplicity = std::max(order_.grid.max_multiplicity, entry.multiplicity);
    order_.grid.total_multiplicity += entry.multiplicity;
  }
  // A cohort without a single row still needs a legal grid; its clients will all be left out.
  order_.grid.max_weight = std::max(order_.grid.max_weight, 1.0);
  order_.grid.total_weight = std::max(order_.grid.total_weight, order_.grid.max_weight);
  order_.grid.max_multiplicity = std::max(order_.grid.max_multiplicity, 1u);
  order_.grid.total_multiplicity = std::max<uint64_t>(order_.grid.total_multiplicity, 1);

  table_ = AttemptTable(clients);
  report_ = {.round = order_.round, .phase = phase, .cohort = clients.size()};
  broadcast_ = {};
  state_ = State::kPreparing;
  host_.Prepare(order_);
}

void RoundEngine::BroadcastReady(Round round, Phase phase, absl::StatusOr<fleet::Blob> broadcast,
                                 TimePoint now) {
  if (state_ != State::kPreparing || round != order_.round || phase != order_.phase) return;
  if (!broadcast.ok()) return Fail(broadcast.status());
  broadcast_ = *std::move(broadcast);
  std::vector<scheduler::WorkerInfo> workers;
  for (const auto& [session, worker] : workers_)
    workers.push_back({.worker = session, .slots = worker.slots});
  dispatch_ = scheduler::DispatchQueue(scheduler_.Assign(cohort_, workers));
  if (workers.empty()) {  // everybody left between two rounds: whoever comes takes from the common
                          // pool
    for (const scheduler::CohortEntry& entry : cohort_.entries) dispatch_.PutBack(entry);
  }
  state_ = State::kRunning;
  ServeParked(now);
  Advance(now);
}

void RoundEngine::Applied(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model,
                          TimePoint now) {
  if (state_ != State::kClosing) return;
  if (!another_phase.ok()) {
    return Fail(Annotate(another_phase.status(), absl::StrCat("round ", order_.round.value)));
  }
  if (*another_phase && !interrupt_) return OpenPhase(Phase(order_.phase.value + 1));
  if (!*another_phase) completed_ = order_.round.value;
  if (interrupt_) return End(RunEnd::kInterrupted, absl::OkStatus(), "");
  if (model.has_value()) OpenEvaluation(order_.round, *std::move(model));
  if (evaluation_open_ && options_.evaluation_gates) {
    state_ = State::kDraining;
    ServeParked(now);
    return Advance(now);
  }
  NextRound(now);
  ServeParked(now);
}

void RoundEngine::OpenEvaluation(Round round, fleet::Blob model) {
  evaluation_ = EvaluationBoard(round, std::move(model), options_.run.evaluation,
                                first_node_->central_test_rows, first_node_->clients);
  evaluation_open_ = true;
}

void RoundEngine::Advance(TimePoint now) {
  if (state_ == State::kEnded) return;
  if (evaluation_open_ && evaluation_.done()) AfterEvaluation(now);
  if (state_ == State::kRunning && table_.closed() && adding_ == 0 && !evaluation_open_) {
    SortByClient(report_.records);
    SortByClient(report_.left_out);
    if (report_.records.empty() && !report_.left_out.empty()) {
      const fleet::LeftOut& first = report_.left_out.front();
      return Fail(absl::AbortedError(
          absl::StrCat("round ", order_.round.value, ": all ", report_.left_out.size(),
                       " clients had to be left out; client ", first.attempt.client.value, ": ",
                       first.message)));
    }
    state_ = State::kClosing;
    host_.Apply(std::exchange(report_, {}));
  }
}

void RoundEngine::AfterEvaluation(TimePoint now) {
  evaluation_open_ = false;
  const std::optional<std::string> stop = host_.Evaluated(evaluation_.Report());
  evaluation_ = EvaluationBoard();
  if (state_ != State::kDraining) return;
  if (stop.has_value()) return End(RunEnd::kStopped, absl::OkStatus(), *stop);
  if (completed_ < options_.run.rounds) return NextRound(now);
  End(RunEnd::kFinished, absl::OkStatus(), "");
}

void RoundEngine::Interrupt() {
  if (state_ == State::kEnded) return;
  interrupt_ = true;
  if (state_ != State::kClosing)
    End(RunEnd::kInterrupted, absl::OkStatus(), "");  // else Applied ends it
}

void RoundEngine::End(RunEnd end, absl::Status status, std::string reason) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  for (auto& [session, worker] : workers_) {
    if (!worker.parked.has_value()) continue;
    worker.told = true;
    host_.AnswerLease(std::exchange(worker.parked, std::nullopt)->ticket,
                      {.next = Next::kFinished});
  }
  host_.Ended(end, std::move(status), std::move(reason));
}

// ---- leases
// ------------------------------------------------------------------------------------------------------

void RoundEngine::Lease(Ticket ticket, const fleet::LeaseRequest& request, Duration wait,
                        TimePoint now) {
  Worker* worker = Seen(request.session, now);
  if (worker == nullptr) return host_.AnswerLease(ticket, {.next = Next::kRegister});
  if (state_ == State::kEnded) {
    worker->told = true;
    return host_.AnswerLease(ticket, {.next = Next::kFinished});
  }
  if (worker->parked.has_value()) {  // its connection broke and it asks anew
    host_.AnswerLease(std::exchange(worker->parked, std::nullopt)->ticket, {.next = Next::kWait});
  }
  if (request.running == 0) {  // it holds nothing, so what it was leased last never arrived
    Requeue(table_.DropWorker(worker->session),
            absl::StrCat("a lease never reached ", worker->name));
    evaluation_.DropWorker(worker->session);
  }
  if (Serve(*worker, request, ticket, now)) return;
  if (table_.leased_to(worker->session) > 0)
    return host_.AnswerLease(ticket, {.next = Next::kCommit});
  worker->parked = {
      .ticket = ticket, .deadline = now + std::min(wait, kLongestPoll), .request = request};
}

bool RoundEngine::Serve(Worker& worker, const fleet::LeaseRequest& request, Ticket ticket,
                        TimePoint now) {
  fleet::LeaseReply reply{.next = Next::kWork};
  const TimePoint expires = now + options_.lease_timeout;
  const auto has = [&](const fleet::Blob& blob) {
    return std::find(request.have.begin(), request.have.end(), blob.digest) != request.have.end();
  };
  const auto named = [&](const fleet::Blob& blob) {
    return has(blob) ? fleet::Blob{.digest = blob.digest, .size = blob.size} : blob;
  };
  // Evaluation first, an even share of it: its rows are waited for, and training evens the slots
  // out afterwards.
  if (evaluation_open_ && evaluation_.waiting() > 0) {
    uint64_t slots = 0;
    for (const auto& [session, other] : workers_) slots += other.slots;
    const uint64_t share = std::clamp<uint64_t>(
        (evaluation_.waiting() * worker.slots + slots - 1) / slots, 1, kMostTasks);
    reply.evaluation =
        fleet::EvaluationLease{.round = evaluation_.round(),
                               .model = named(evaluation_.model()),
                               .tasks = evaluation_.Take(worker.session, share, expires, fences_)};
  }
  if (state_ == State::kRunning && !dispatch_.empty()) {
    fleet::TrainingLease lease{.round = order_.round,
                               .phase = order_.phase,
                               .broadcast = named(broadcast_),
                               .max_weight = order_.grid.max_weight,
                               .total_weight = order_.grid.total_weight,
                               .max_multiplicity = order_.grid.max_multiplicity,
                               .total_multiplicity = order_.grid.total_multiplicity};
    for (const scheduler::CohortEntry& entry : dispatch_.Take(worker.session, worker.slots)) {
      const Attempt attempt = table_.Lease(entry.client, worker.session, expires, fences_);
      lease.assignments.push_back({.client = entry.client,
                                   .fence = attempt.fence,
                                   .multiplicity = entry.multiplicity,
                                   .weight = WeightOf(entry.client)});
    }
    lease.last = dispatch_.empty();
    reply.training = std::move(lease);
  }
  if (!reply.training.has_value() && !reply.evaluation.has_value()) return false;
  host_.AnswerLease(ticket, std::move(reply));
  return true;
}

void RoundEngine::ServeParked(TimePoint now) {
  for (auto& [session, worker] : workers_) {
    if (!worker.parked.has_value()) continue;
    const Parked parked = *worker.parked;
    if (Serve(worker, parked.request, parked.ticket, now)) worker.parked.reset();
  }
}

void RoundEngine::Requeue(const std::vector<Attempt>& ended, const std::string& why) {
  if (ended.empty()) return;
  for (const Attempt& attempt : ended) dispatch_.PutBack(*FindEntry(attempt.client));
  report_.requeued += ended.size();
  host_.Note({"requeued",
              {{"round", int64_t{order_.round.value}},
               {"clients", static_cast<int64_t>(ended.size())},
               {"why", why}}});
}

fleet::HeartbeatReply RoundEngine::Heartbeat(const fleet::HeartbeatRequest& request,
                                             TimePoint now) {
  Worker* worker = Seen(request.session, now);
  if (worker == nullptr) return {.known = false};
  fleet::HeartbeatReply reply{.stop = state_ == State::kEnded};
  if (reply.stop) worker->told = true;
  table_.Renew(worker->session, now + options_.lease_timeout);
  reply.dropped = table_.NotHeld(worker->session, request.held);
  evaluation_.Renew(worker->session, now + options_.lease_timeout);
  reply.forecast = dispatch_.Peek(worker->session, kForecast);
  return reply;
}

void RoundEngine::Release(const fleet::ReleaseRequest& request, TimePoint now) {
  Worker* worker = Seen(request.session, now);
  if (worker == nullptr) return;
  Requeue(table_.Release(worker->session, request.attempts),
          absl::StrCat(worker->name, " gave them back"));
  if (request.leaving) return Lose(request.session, "it left", now);
  ServeParked(now);
}

fleet::UploadVerdict RoundEngine::Offer(const fleet::UploadOffer& offer) const {
  if (offer.round.value == 0) {
    const bool known = first_node_.has_value() && first_node_->examples.digest == offer.digest;
    return known ? fleet::UploadVerdict::kHave : fleet::UploadVerdict::kSend;
  }
  if (!workers_.contains(offer.session) || state_ != State::kRunning ||
      offer.round != order_.round) {
    return fleet::UploadVerdict::kStale;
  }
  return fleet::UploadVerdict::kSend;
}

// ---- commits
// -----------------------------------------------------------------------------------------------------

absl::Status RoundEngine::CheckEvaluation(const fleet::EvaluationResult& result) const {
  const fleet::EvaluationTask& task = result.task;
  const size_t sums = training::SchemaFor(options_.run.task).sums.size();
  const bool counted =
      result.sums.size() == sums && std::isfinite(result.sums[0]) && result.sums[0] >= 0;
  const bool central = task.kind == fleet::EvaluationKind::kCentralTest;
  if (counted && (!central || result.sums[0] == static_cast<double>(task.end - task.begin)))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("an evaluation after round ", result.round.value,
                                                 " does not report the rows it was asked for"));
}

absl::Status RoundEngine::CheckRecords(const fleet::Part& part) const {
  const size_t sums = training::SchemaFor(options_.run.task).sums.size();
  for (const fleet::ClientRecord& record : part.included) {
    const scheduler::CohortEntry* entry = FindEntry(record.attempt.client);
    if (entry == nullptr || record.multiplicity != entry->multiplicity ||
        record.weight != WeightOf(record.attempt.client)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "client ", record.attempt.client.value, " has another weight than it was leased with"));
    }
    if (record.examples != examples_[record.attempt.client.value] ||
        (!record.sums.empty() && !(std::isfinite(record.sums[0]) && record.sums[0] >= 0))) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", record.attempt.client.value,
                       " reports another number of examples than it has"));
    }
    if (record.sums.size() != sums) {
      return absl::InvalidArgumentError(absl::StrCat("client ", record.attempt.client.value,
                                                     " reports ", record.sums.size(),
                                                     " metric sums, the task has ", sums));
    }
  }
  if (part.broadcast != broadcast_.digest)
    return absl::InvalidArgumentError("it was trained from another broadcast");
  return absl::OkStatus();
}

fleet::CommitReply RoundEngine::Accept(Ticket ticket, const Worker& worker, const fleet::Part& part,
                                       const absl::Status& decoded, bool& adding) {
  const std::vector<Attempt> attempts = AttemptsOf(part);
  const bool current =
      state_ == State::kRunning && part.round == order_.round && part.phase == order_.phase;
  const auto turn_down = [&](Verdict verdict, const absl::Status& why) {
    host_.Note({verdict == Verdict::kStale ? "part_stale" : "part_refused",
                {{"worker", worker.name},
                 {"round", int64_t{part.round.value}},
                 {"why", std::string(why.message())}}});
    // Nothing of the part counts, so what is still leased to this worker has to be trained again.
    if (current)
      Requeue(table_.Release(worker.session, attempts),
              absl::StrCat("part of ", worker.name, " turned down"));
    return fleet::CommitReply{.verdict = verdict, .reason = std::string(why.message())};
  };
  if (!current)
    return turn_down(Verdict::kStale,
                     absl::FailedPreconditionError("that round and phase is not open"));
  if (const absl::Status status = table_.Judge(worker.session, attempts); !status.ok()) {
    return turn_down(absl::IsInvalidArgument(status) ? Verdict::kRefused : Verdict::kStale, status);
  }
  if (!decoded.ok()) return turn_down(Verdict::kRefused, decoded);
  if (const absl::Status status = CheckRecords(part); !status.ok())
    return turn_down(Verdict::kRefused, status);

  std::vector<Attempt> included(attempts.begin(),
                                attempts.begin() + static_cast<long>(part.included.size()));
  std::vector<Attempt> left_out(attempts.begin() + static_cast<long>(part.included.size()),
                                attempts.end());
  table_.Count(included);
  table_.GiveUp(left_out);
  report_.records.insert(report_.records.end(), part.included.begin(), part.included.end());
  report_.left_out.insert(report_.left_out.end(), part.left_out.begin(), part.left_out.end());
  host_.Note({"part",
              {{"worker", worker.name},
               {"round", int64_t{part.round.value}},
               {"clients", static_cast<int64_t>(included.size())},
               {"left_out", static_cast<int64_t>(left_out.size())}}});
  if (!included.empty()) {
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
    if (const absl::Status status = CheckEvaluation(result); !status.ok()) {
      evaluation_.DropWorker(worker->session);
      return answer({.verdict = Verdict::kRefused, .reason = std::string(status.message())});
    }
  }
  for (const fleet::EvaluationResult& result : request.evaluations) {
    if (evaluation_open_) evaluation_.Complete(worker->session, result);
  }
  // A worker commits when it is idle: a task that it still has not reported is not being worked on.
  evaluation_.DropWorker(worker->session);
  fleet::CommitReply reply{.verdict = Verdict::kAccepted};
  bool adding = false;
  if (request.part.has_value()) reply = Accept(ticket, *worker, *request.part, decoded, adding);
  if (reply.verdict == Verdict::kAccepted) worker->last_commit = request.commit_id;
  if (!adding)
    answer(std::move(reply));  // else PartAdded answers: the sum is acknowledged once it is in
  ServeParked(now);
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

// ---- time
// --------------------------------------------------------------------------------------------------------

void RoundEngine::Tick(TimePoint now) {
  std::vector<WorkerId> lost;
  for (auto& [session, worker] : workers_) {
    if (worker.parked.has_value()) {
      worker.last_seen = now;  // an open call is a sign of life
      if (worker.parked->deadline <= now) {
        host_.AnswerLease(std::exchange(worker.parked, std::nullopt)->ticket,
                          {.next = Next::kWait});
      }
    } else if (worker.last_seen + options_.lease_timeout <= now) {
      lost.push_back(session);
    }
  }
  for (const WorkerId session : lost)
    Lose(session, "nothing was heard of it for a lease's time", now);
  Requeue(table_.Expire(now), "lease ran out");
  evaluation_.Expire(now);
  if (state_ == State::kEnded) return;
  ServeParked(now);
  Advance(now);
}

TimePoint RoundEngine::NextDeadline() const {
  TimePoint next = std::min(table_.NextExpiry(), evaluation_.NextExpiry());
  for (const auto& [session, worker] : workers_) {
    next = std::min(next, worker.parked.has_value() ? worker.parked->deadline
                                                    : worker.last_seen + options_.lease_timeout);
  }
  return next;
}

bool RoundEngine::everybody_told() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.told; });
}

const scheduler::CohortEntry* RoundEngine::FindEntry(ClientId client) const {
  const auto it = std::lower_bound(
      cohort_.entries.begin(), cohort_.entries.end(), client,
      [](const scheduler::CohortEntry& entry, ClientId id) { return entry.client < id; });
  return it != cohort_.entries.end() && it->client == client ? &*it : nullptr;
}

double RoundEngine::WeightOf(ClientId client) const {
  return options_.run.cohort.weight == WeightPolicy::kUniform
             ? 1.0
             : static_cast<double>(examples_[client.value]);
}

}  // namespace macaw::server
