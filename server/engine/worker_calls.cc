// What workers ask for, and what becomes of those who stop asking: registration, leases,
// heartbeats, releases.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/status.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

using fleet::Next;

// A lease costs a round trip of some 100 µs: a piece is worth at least this many seconds of
// training, which is also how far apart two workers may end.
constexpr double kLeaseWorth = 2e-3;
// Only a lease that is asked for again soon is worth parking; this bounds what a request can ask.
constexpr Duration kLongestPoll = std::chrono::seconds(60);
// A server that is started again on this host is back within a second.
constexpr Duration kReconnectEvery = std::chrono::milliseconds(200);
constexpr double kForEver = 1e8;              // seconds that still fit a Duration
constexpr uint64_t kMostChunks = 1 << 20;     // of the central test set: a task each, in memory
constexpr uint64_t kMostTasks = 8192;         // a lease and its answer must fit a message
constexpr uint64_t kMostStateTasks = 16;      // each names up to fleet::kStateRange versions
constexpr size_t kMostDeletable = 4096;       // likewise: versions named per lease
constexpr size_t kMostKeptDeletable = 65536;  // of one holding, until somebody of it asks

std::string ToString(const NumericProfile& profile) {
  return absl::StrCat("(", profile.trainer, ", ", profile.instruction_set, ", ", profile.libraries,
                      ")");
}

}  // namespace

absl::Status RoundEngine::CheckNode(const fleet::RegisterRequest& request,
                                    const fleet::ClientTable& table) const {
  const auto refuse = [&](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker \"", request.name, "\" cannot join: ", why));
  };
  if (request.name.empty() || request.slots == 0) return refuse("it has no name or no slots");
  const RunConfig& run = options_.run;
  if (request.input_shape != run.model.input_shape) {
    return refuse("its examples have another shape than the run's model.input_shape");
  }
  const bool by_class = run.task == TaskKind::kClassification || run.task == TaskKind::kNextToken;
  if (by_class && request.classes != run.model.classes) {
    return refuse(absl::StrCat("its data has ", request.classes, " classes, the run's model ",
                               run.model.classes));
  }
  if (request.central_test_rows / run.evaluation.chunk > kMostChunks) {
    return refuse(absl::StrCat(
        "its test set of ", request.central_test_rows, " rows makes more than ", kMostChunks,
        " chunks of evaluation.chunk = ", run.evaluation.chunk, " rows: raise that"));
  }
  const bool whole = request.clients > 0 && table.names.empty();  // a population, by number
  if (whole && run.clients != 0 && request.clients != run.clients) {
    return refuse(
        absl::StrCat("its data has ", request.clients, " clients, the run ", run.clients));
  }
  if (whole && options_.data_digest.has_value() && *options_.data_digest != request.data_digest) {
    return refuse(
        "its data (files, partition or seed) differs from what the checkpoint was trained on");
  }
  if (options_.profile.has_value() && *options_.profile != request.profile) {
    return refuse(absl::StrCat("its numeric profile ", ToString(request.profile),
                               " differs from the checkpoint's ", ToString(*options_.profile),
                               ", so the run would not be the same"));
  }
  if (request.clients > 0 && run.cohort.weight == WeightPolicy::kTokens && table.tokens.empty())
    return refuse("cohort.weight is \"tokens\", but its data does not hold sequences");
  if (const absl::Status status = roster_.Check(request, table); !status.ok())
    return refuse(std::string(status.message()));
  const bool known = roster_.Find(request.data_digest).has_value();
  const uint64_t clients = roster_.clients() + (known ? 0 : request.clients);
  if (run.clients != 0 && clients > run.clients) {
    return refuse(absl::StrCat("with its ", request.clients, " clients there are ", clients,
                               ", the run has ", run.clients));
  }
  if (profile_.has_value() && request.profile != *profile_) {
    return refuse(absl::StrCat("its numeric profile ", ToString(request.profile),
                               " differs from the run's ", ToString(*profile_),
                               ", so its results would not be reproducible"));
  }
  return absl::OkStatus();
}

absl::StatusOr<fleet::RegisterReply> RoundEngine::Register(const fleet::RegisterRequest& request,
                                                           fleet::ClientTable table,
                                                           TimePoint now) {
  MACAW_RETURN_IF_ERROR(CheckNode(request, table));
  MACAW_RETURN_IF_ERROR(CheckStateStore(request));
  fleet::RegisterReply reply{.epoch = options_.epoch,
                             .run = options_.run,
                             .lease_timeout = options_.lease_timeout,
                             .heartbeat_every = options_.lease_timeout / 3,
                             .run_id = options_.run_id,
                             .reconnect_every = kReconnectEvery};
  if (replaced_.contains({request.name, request.incarnation})) {
    return absl::FailedPreconditionError(absl::StrCat("another process runs under the name \"",
                                                      request.name,
                                                      "\"; give every worker its own (--name)"));
  }
  for (auto& [id, worker] : workers_) {
    if (worker.name != request.name) continue;
    if (worker.incarnation == request.incarnation) {  // the answer was lost on the way
      worker.last_seen = now;
      reply.session = worker.session;
      return reply;
    }
    replaced_.insert({worker.name, worker.incarnation});
    Lose(id, "its process was replaced", now);
    break;
  }
  CountDeaths(request.name, request.died_running);
  if (!profile_.has_value()) profile_ = request.profile;
  const HoldingId holding = roster_.Add(request, std::move(table));
  pools_.resize(roster_.holdings());
  Worker worker{.id = WorkerId(++last_worker_),
                .session = NewSession(),
                .name = request.name,
                .incarnation = request.incarnation,
                .slots = request.slots,
                .last_seen = now,
                .device = ToString(request.profile),
                .volatile_state = request.volatile_state,
                .holding = holding,
                .central_test = request.central_test_rows > 0};
  reply.session = worker.session;
  sessions_[worker.session] = worker.id;
  host_.Record(
      log::NodeJoined{.node = worker.id,
                      .name = worker.name,
                      .slots = worker.slots,
                      .incarnation = worker.incarnation,
                      .profile = worker.device,
                      .holdings = {{.data = request.data_digest, .clients = request.clients}}});
  for (auto& [phase, estimator] : estimators_) estimator.AddWorker(worker.id, worker.device);
  PoolOf(worker).workers.insert(worker.id);
  PoolOf(worker).slots += worker.slots;
  if (worker.central_test) central_slots_ += worker.slots;
  workers_.emplace(worker.id, std::move(worker));
  const bool complete = options_.run.clients == 0 || roster_.clients() == options_.run.clients;
  if (state_ == State::kGathering && workers_.size() >= options_.workers && complete) Begin(now);
  return reply;
}

SessionId RoundEngine::NewSession() const {
  if (!options_.session_numbers) return SessionId(last_worker_);
  SessionId session;
  while (session.value == 0 || sessions_.contains(session))
    session = SessionId(options_.session_numbers());
  return session;
}

std::optional<WorkerId> RoundEngine::WorkerOf(SessionId session) const {
  const auto it = sessions_.find(session);
  return it != sessions_.end() ? std::optional(it->second) : std::nullopt;
}

RoundEngine::Worker* RoundEngine::Seen(SessionId session, TimePoint now) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return nullptr;
  Worker& worker = workers_.at(it->second);
  worker.last_seen = now;
  return &worker;
}

void RoundEngine::Lose(WorkerId id, const std::string& why, TimePoint now) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  Worker worker = std::move(it->second);
  workers_.erase(it);
  sessions_.erase(worker.session);
  host_.SessionEnded(worker.session);
  if (worker.parked.has_value())
    host_.AnswerLease(worker.parked->ticket, {.next = Next::kRegister});
  host_.Record(log::NodeLost{.node = id, .name = worker.name, .why = why});
  const std::vector<Attempt> lost = table_.DropWorker(id);
  for (const Attempt& attempt : lost) lost_leases_[attempt.fence] = worker.name;
  Requeue(lost, absl::StrCat(worker.name, " lost"));
  Pool& pool = PoolOf(worker);
  pool.workers.erase(id);
  pool.slots -= worker.slots;
  if (worker.central_test) central_slots_ -= worker.slots;
  pool.dispatch.RemoveWorker(id);
  for (auto& [phase, estimator] : estimators_) estimator.RemoveWorker(id);
  evaluation_.DropWorker(id);
  if (worker.volatile_state && versions_.any()) {
    return Fail(absl::AbortedError(absl::StrCat(
        "worker \"", worker.name, "\" kept the clients' states in its memory and is gone (", why,
        "), so the run cannot go on: start it anew, with state.store = \"disk\" to outlast that")));
  }
  ServeParked(now);
}

void RoundEngine::CountDeaths(const std::string& worker, const std::vector<Attempt>& died) {
  for (const Attempt& attempt : died) {
    const auto lease = lost_leases_.find(attempt.fence);
    if (lease == lost_leases_.end() || lease->second != worker) continue;
    if (FindEntry(attempt.client) == nullptr) continue;
    lost_leases_.erase(lease);
    const uint32_t deaths = ++deaths_[attempt.client];
    host_.Record(log::Died{.round = order_.round, .client = attempt.client, .deaths = deaths});
    if (deaths >= options_.max_deaths) {
      Fail(absl::AbortedError(absl::StrCat(
          "client ", attempt.client.value, " was being trained when its worker died, ", deaths,
          " times in round ", order_.round.value,
          ": look at its data and at the worker's log, or hold it out ([data] heldout_clients)")));
    }
  }
}

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
    Requeue(table_.DropWorker(worker->id), absl::StrCat("a lease never reached ", worker->name));
    evaluation_.DropWorker(worker->id);
  }
  const Pool& pool = PoolOf(*worker);
  if (Serve(*worker, request, ticket, now)) return DismissParked(pool);
  if (table_.leased_to(worker->id) > 0) {
    if (!more_to_lease(pool)) return host_.AnswerLease(ticket, {.next = Next::kCommit});
    // It has asked ahead and shall ask again when it has need; a poll would keep it from that.
    if (request.wanted == 0)
      return host_.AnswerLease(ticket, {.next = Next::kWait, .when_idle = true});
  }
  worker->parked = {
      .ticket = ticket, .deadline = now + std::min(wait, kLongestPoll), .request = request};
}

bool RoundEngine::Serve(Worker& worker, const fleet::LeaseRequest& request, Ticket ticket,
                        TimePoint now) {
  // Soon there will be training, too: what is to be evaluated goes out with it, so that no slot is
  // idle at its end.
  if (state_ == State::kPreparing) return false;
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
  Pool& pool = PoolOf(worker);
  std::vector<fleet::EvaluationTask> tasks;
  if (evaluation_open_ && worker.central_test)
    TakeEvaluation(worker, EvaluationBoard::Central(), central_slots_, expires, tasks);
  if (evaluation_open_)
    TakeEvaluation(worker, EvaluationBoard::Of(worker.holding), pool.slots, expires, tasks);
  if (!tasks.empty()) {
    for (fleet::EvaluationTask& task : tasks) {
      if (task.kind == fleet::EvaluationKind::kClientTest)
        task.state_version = versions_.Current(task.client);
    }
    reply.evaluation = fleet::EvaluationLease{.round = evaluation_.round(),
                                              .model = named(evaluation_.model()),
                                              .tasks = std::move(tasks)};
  }
  if (more_to_lease(pool)) {
    // Who holds nothing of the round is as good as idle, whatever it evaluates.
    const bool holds = table_.leased_to(worker.id) > 0;
    const scheduler::Piece piece =
        pool.dispatch.Take({.worker = worker.id,
                            .slots = worker.slots,
                            .idle = holds ? std::min(request.wanted, worker.slots) : worker.slots,
                            .now = ToSeconds(now - report_.times.ready),
                            .least_seconds = kLeaseWorth});
    reply.when_idle = piece.when_idle;
    worker.look_again =
        std::isfinite(piece.look_again)
            ? report_.times.ready + FromSeconds(std::min(piece.look_again, kForEver))
            : TimePoint::max();
    if (!piece.clients.empty()) {
      fleet::TrainingLease lease{.round = order_.round,
                                 .phase = order_.phase,
                                 .broadcast = named(broadcast_),
                                 .max_weight = order_.grid.max_weight,
                                 .total_weight = order_.grid.total_weight,
                                 .max_multiplicity = order_.grid.max_multiplicity,
                                 .total_multiplicity = order_.grid.total_multiplicity};
      log::Leased leased{.round = order_.round, .phase = order_.phase, .node = worker.id};
      leased.attempts.reserve(piece.clients.size());
      for (const scheduler::CohortEntry& entry : piece.clients) {
        const Attempt attempt = table_.Lease(entry.client, worker.id, expires, fences_);
        leased.attempts.push_back(attempt);
        leased_at_[entry.client] = now;
        lease.assignments.push_back({.client = entry.client,
                                     .place = roster_.PlaceOf(entry.client),
                                     .fence = attempt.fence,
                                     .multiplicity = entry.multiplicity,
                                     .weight = WeightOf(entry.client),
                                     .state_version = versions_.Current(entry.client)});
      }
      host_.Record(std::move(leased));
      lease.last = pool.dispatch.empty();
      reply.training = std::move(lease);
    }
  }
  if (!reply.training.has_value() && !reply.evaluation.has_value()) return false;
  reply.deletable = TakeDeletable(pool);
  host_.AnswerLease(ticket, std::move(reply));
  return true;
}

void RoundEngine::TakeEvaluation(const Worker& worker, EvaluationBoard::Queue queue, uint64_t slots,
                                 TimePoint expires, std::vector<fleet::EvaluationTask>& tasks) {
  const uint64_t waiting = evaluation_.waiting(queue);
  if (waiting == 0) return;
  const uint64_t most = (finishing_.has_value() ? kMostStateTasks : kMostTasks) - tasks.size();
  const uint64_t share =
      std::clamp<uint64_t>((waiting * worker.slots + slots - 1) / slots, 1, most);
  evaluation_.Take(worker.id, queue, share, expires, evaluation_fences_, tasks);
}

std::vector<Attempt> RoundEngine::TakeDeletable(Pool& pool) {
  for (const Attempt& version : versions_.TakeDeletable(kMostDeletable)) {
    std::deque<Attempt>& theirs = PoolOf(version.client).deletable;
    theirs.push_back(version);
    // Of an owner that stays away: what is forgotten is an orphan in its store, which is swept.
    if (theirs.size() > kMostKeptDeletable) theirs.pop_front();
  }
  const size_t count = std::min(pool.deletable.size(), kMostDeletable);
  const auto end = pool.deletable.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Attempt> taken(pool.deletable.begin(), end);
  pool.deletable.erase(pool.deletable.begin(), end);
  return taken;
}

void RoundEngine::ServeParked(Worker& worker, TimePoint now) {
  if (!worker.parked.has_value()) return;
  const Parked parked = *worker.parked;
  if (Serve(worker, parked.request, parked.ticket, now)) worker.parked.reset();
}

void RoundEngine::ServeParked(TimePoint now) {
  for (auto& [id, worker] : workers_) ServeParked(worker, now);
  for (const Pool& pool : pools_) DismissParked(pool);
}

// What a commit gives back is for the workers of its pool, or for those with the central test set.
void RoundEngine::ServeAfterCommit(const Worker& committed, TimePoint now) {
  if (committed.central_test && evaluation_.waiting(EvaluationBoard::Central()) > 0)
    return ServeParked(now);
  const Pool& pool = PoolOf(committed);
  for (const WorkerId id : pool.workers) ServeParked(workers_.at(id), now);
  DismissParked(pool);
}

void RoundEngine::DismissParked(const Pool& pool) {
  if (more_to_lease(pool)) return;
  for (const WorkerId id : pool.workers) {
    Worker& worker = workers_.at(id);
    if (!worker.parked.has_value() || table_.leased_to(id) == 0) continue;
    host_.AnswerLease(std::exchange(worker.parked, std::nullopt)->ticket, {.next = Next::kCommit});
  }
}

void RoundEngine::Requeue(const std::vector<Attempt>& ended, const std::string& why) {
  if (ended.empty()) return;
  for (const Attempt& attempt : ended)
    PoolOf(attempt.client).dispatch.PutBack(*FindEntry(attempt.client));
  report_.requeued += ended.size();
  host_.Record(
      log::Requeued{.round = order_.round, .phase = order_.phase, .attempts = ended, .why = why});
}

fleet::HeartbeatReply RoundEngine::Heartbeat(const fleet::HeartbeatRequest& request,
                                             TimePoint now) {
  Worker* worker = Seen(request.session, now);
  if (worker == nullptr) return {.known = false};
  fleet::HeartbeatReply reply{.stop = state_ == State::kEnded};
  if (reply.stop) worker->told = true;
  table_.Renew(worker->id, now + options_.lease_timeout);
  reply.dropped = table_.NotHeld(worker->id, request.held);
  evaluation_.Renew(worker->id, now + options_.lease_timeout);
  return reply;
}

void RoundEngine::Release(const fleet::ReleaseRequest& request, TimePoint now) {
  Worker* worker = Seen(request.session, now);
  if (worker == nullptr) return;
  Requeue(table_.Release(worker->id, request.attempts),
          absl::StrCat(worker->name, " gave them back"));
  evaluation_.Release(worker->id, request.tasks);
  if (request.leaving) return Lose(worker->id, "it left", now);
  ServeParked(now);
}

fleet::UploadVerdict RoundEngine::Offer(const fleet::UploadOffer& offer) const {
  if (offer.purpose == fleet::BlobPurpose::kPopulation) {
    return roster_.HasTable(offer.digest) ? fleet::UploadVerdict::kHave
                                          : fleet::UploadVerdict::kSend;
  }
  const auto session = sessions_.find(offer.session);
  if (session == sessions_.end()) return fleet::UploadVerdict::kStale;
  // Before the round: what was accepted stays so when its round is over.
  if (offer.commit_id != 0 && offer.commit_id <= workers_.at(session->second).last_commit)
    return fleet::UploadVerdict::kNotNeeded;
  const bool wanted = state_ == State::kRunning && offer.round == order_.round;
  return wanted ? fleet::UploadVerdict::kSend : fleet::UploadVerdict::kStale;
}

}  // namespace macaw::server
