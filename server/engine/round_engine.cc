// The story of a run: rounds opening and closing, evaluation, the end, and time. The calls of
// workers are in worker_calls.cc, commits in commits.cc.
#include "server/engine/round_engine.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/status.h"
#include "training/api/straggler.h"

namespace macaw::server {
namespace {

constexpr uint64_t kLeastReplaced = 65536;  // replaced state versions that are remembered

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
      completed_(options_.completed),
      evaluation_fences_(options_.epoch),
      versions_(options_.versions, std::max<uint64_t>(options_.run.clients, kLeastReplaced)) {}

bool EvaluationDue(const RunConfig& run, Round round) {
  const uint32_t every = run.evaluation.every;
  return round.value == run.rounds || (every > 0 && round.value % every == 0);
}

void RoundEngine::Abort(absl::Status why) { Fail(std::move(why)); }

void RoundEngine::Begin(TimePoint now) {
  if (options_.data_digest.has_value() && *options_.data_digest != roster_.data_digest()) {
    return Fail(absl::FailedPreconditionError(
        "the workers' data (files, partition or seed) differs from what the checkpoint was trained "
        "on"));
  }
  roster_.Begin();
  auto sampler = scheduler::MakeSampler(options_.run.cohort, roster_.rows());
  if (!sampler.ok()) return Fail(sampler.status());
  sampler_ = *std::move(sampler);
  eligible_ = DigestOf(BytesOf(std::span<const uint32_t>(roster_.rows())));
  if (options_.evaluate_first.has_value())
    OpenEvaluation(Round(completed_), *options_.evaluate_first);
  if (evaluation_open_ && options_.evaluation_gates) {
    state_ = State::kDraining;
    return Advance(now);
  }
  NextRound(now);
}

void RoundEngine::NextRound(TimePoint now) {
  if (completed_ < options_.run.rounds) return OpenRound(Round(completed_ + 1), now);
  state_ = State::kDraining;
  if (!evaluation_open_) return Finish(RunEnd::kFinished, "", now);  // went down at the very end
  Advance(now);
}

void RoundEngine::OpenRound(Round round, TimePoint now) {
  cohort_ = sampler_->Sample(round);
  for (const scheduler::CohortEntry& entry : cohort_.entries) {
    if (!options_.stateful || entry.multiplicity == 1) continue;
    return Fail(absl::FailedPreconditionError(
        absl::StrCat("client ", entry.client.value, " was drawn ", entry.multiplicity,
                     " times, but an algorithm that keeps client states needs a cohort.sampling "
                     "without replacement")));
  }
  if (options_.run.cohort.straggler_policy == "drop") {
    std::erase_if(cohort_.entries, [&](const scheduler::CohortEntry& entry) {
      return training::IsStraggler(options_.run.cohort, round, entry.client);
    });
  }
  if (options_.stateful) ReportStates();
  for (scheduler::CohortEntry& entry : cohort_.entries) Weigh(entry, round);
  deaths_.clear();
  lost_leases_.clear();
  left_out_before_.clear();
  order_ = {.round = round};
  OpenPhase(Phase(0), now);
}

void RoundEngine::OpenPhase(Phase phase, TimePoint now) {
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
  leased_at_.clear();
  report_ = {.round = order_.round,
             .phase = phase,
             .cohort = clients.size(),
             .times = {.opened = now, .ready = now}};
  broadcast_ = {};
  state_ = State::kPreparing;
  host_.Prepare(order_);
}

scheduler::Estimator& RoundEngine::Estimates() {
  const auto [it, fresh] = estimators_.try_emplace(order_.phase);
  for (auto& [id, worker] : workers_) {
    if (fresh) it->second.AddWorker(id, worker.device);
  }
  return it->second;
}

void RoundEngine::Weigh(scheduler::CohortEntry& entry, Round round) const {
  const RunConfig& run = options_.run;
  const LocalConfig local = training::WorkOf(run.cohort, run.local, round, entry.client);
  const uint64_t batch =
      local.batch_size > 0 ? local.batch_size : std::max<uint64_t>(entry.load, 1);
  entry.steps = local.steps > 0 ? local.steps : local.epochs * ((entry.load + batch - 1) / batch);
  entry.has_state = options_.stateful && versions_.Current(entry.client).counter != 0;
}

void RoundEngine::BroadcastReady(Round round, Phase phase, absl::StatusOr<fleet::Blob> broadcast,
                                 TimePoint now) {
  if (state_ != State::kPreparing || round != order_.round || phase != order_.phase) return;
  if (!broadcast.ok()) return Fail(broadcast.status());
  broadcast_ = *std::move(broadcast);
  RecordOpened();
  GiveUpAsDecided();
  report_.times.ready = now;
  PlanPools();
  state_ = State::kRunning;
  ServeParked(now);
  Advance(now);
}

void RoundEngine::RecordOpened() {
  log::RoundOpened opened{.round = order_.round,
                          .phase = order_.phase,
                          .eligible = eligible_,
                          .max_weight = order_.grid.max_weight,
                          .total_weight = order_.grid.total_weight,
                          .max_multiplicity = order_.grid.max_multiplicity,
                          .total_multiplicity = order_.grid.total_multiplicity,
                          .broadcast = broadcast_.digest,
                          .broadcast_bytes = broadcast_.size};
  opened.cohort.reserve(cohort_.entries.size());
  for (const scheduler::CohortEntry& entry : cohort_.entries)
    opened.cohort.push_back({.client = entry.client, .multiplicity = entry.multiplicity});
  host_.Record(std::move(opened));
}

void RoundEngine::GiveUpAsDecided() {
  const auto decided = options_.given_up.find({order_.round, order_.phase});
  if (decided == options_.given_up.end()) return;
  log::GaveUp gave_up{.round = order_.round, .phase = order_.phase};
  for (const log::GivenUp& one : decided->second) {
    const ClientId client = one.attempt.client;
    if (FindEntry(client) == nullptr) continue;  // another cohort: the logs will show it
    table_.GiveUpQueued(client);
    report_.left_out.push_back(
        {.attempt = {.client = client}, .reason = one.reason, .message = TextOf(one)});
    gave_up.given_up.push_back(one);
  }
  host_.Record(std::move(gave_up));
}

// Each pool's clients on its own workers.
void RoundEngine::PlanPools() {
  std::vector<scheduler::Cohort> cohorts(pools_.size());
  for (const scheduler::CohortEntry& entry : cohort_.entries) {
    if (table_.StateOf(entry.client) != AttemptTable::State::kQueued) continue;  // given up already
    cohorts[roster_.HoldingOf(entry.client).value].entries.push_back(entry);
  }
  for (size_t i = 0; i < pools_.size(); ++i) {
    Pool& pool = pools_[i];
    pool.dispatch = {};
    scheduler::Cohort& cohort = cohorts[i];
    if (cohort.entries.empty()) continue;
    cohort.round = cohort_.round;
    std::vector<scheduler::WorkerInfo> workers;
    for (const WorkerId id : pool.workers) {
      workers.push_back(
          {.worker = id, .slots = workers_.at(id).slots, .costs = Estimates().CostsOf(id)});
    }
    const scheduler::Plan plan = scheduler_.Assign(cohort, workers);
    // An owner's clients leave nothing to plan.
    if (roster_.owner_of(HoldingId(static_cast<uint32_t>(i))).empty())
      host_.Record(log::Planned{.round = order_.round, .phase = order_.phase, .why = plan.reason});
    pool.dispatch = scheduler::DispatchQueue(plan);
    if (!workers.empty()) continue;
    // Nobody who has them is there: whoever comes takes from the common pool.
    for (const scheduler::CohortEntry& entry : cohort.entries) pool.dispatch.PutBack(entry);
  }
}

void RoundEngine::Applied(absl::StatusOr<bool> another_phase, std::optional<fleet::Blob> model,
                          TimePoint now) {
  if (state_ != State::kClosing) return;
  Estimates().EndRound();
  if (!another_phase.ok()) {
    return Fail(Annotate(another_phase.status(), absl::StrCat("round ", order_.round.value)));
  }
  if (*another_phase && versions_.staged()) {
    return Fail(absl::InternalError(
        absl::StrCat("round ", order_.round.value, ": ", options_.run.algorithm.name,
                     " moved client states in a phase that was not the last")));
  }
  if (*another_phase && !interrupt_) return OpenPhase(Phase(order_.phase.value + 1), now);
  if (!*another_phase) {
    completed_ = order_.round.value;
    lost_rounds_ = std::exchange(round_lost_, false) ? lost_rounds_ + 1 : 0;
    versions_.Close(order_.round);
  }
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
  evaluation_ = EvaluationBoard(round, std::move(model), options_.run.evaluation, roster_);
  evaluation_open_ = true;
}

void RoundEngine::Advance(TimePoint now) {
  if (state_ == State::kEnded) return;
  if (evaluation_open_ && evaluation_.done()) AfterEvaluation(now);
  if (state_ == State::kRunning && table_.closed() && adding_ == 0 && !evaluation_open_) {
    SortByClient(report_.records);
    SortByClient(report_.left_out);
    if (report_.records.empty() && !report_.left_out.empty() && !MoveOnWithoutClients()) return;
    state_ = State::kClosing;
    report_.times.gathered = now;
    for (const auto& [id, worker] : workers_) report_.slots += worker.slots;
    report_.left_out_before = left_out_before_;
    left_out_before_.insert(left_out_before_.end(), report_.left_out.begin(),
                            report_.left_out.end());
    host_.Apply(std::exchange(report_, {}));
  }
}

bool RoundEngine::MoveOnWithoutClients() {
  round_lost_ = true;
  const fleet::LeftOut& first = report_.left_out.front();
  const std::string what = absl::StrCat(
      "round ", order_.round.value, ": all ", report_.left_out.size(),
      " clients had to be left out; client ", first.attempt.client.value, ": ", first.message);
  host_.Record(log::RoundLost{.round = order_.round, .phase = order_.phase, .why = what});
  // A shorter run that has lost all its rounds has trained nothing either.
  const uint32_t most =
      std::min(options_.max_lost_rounds, options_.run.rounds - options_.completed);
  if (lost_rounds_ + 1 < most) return true;
  Fail(absl::AbortedError(
      lost_rounds_ == 0 ? what
                        : absl::StrCat(what, " (as in the ", lost_rounds_, " rounds before)")));
  return false;
}

void RoundEngine::AfterEvaluation(TimePoint now) {
  evaluation_open_ = false;
  if (finishing_.has_value()) {
    state_digest_ =
        fleet::CombineStateDigests(versions_.index().size(), evaluation_.Report().states);
    return End(finishing_->first, absl::OkStatus(), finishing_->second);
  }
  const std::optional<std::string> stop = host_.Evaluated(evaluation_.Report());
  evaluation_ = EvaluationBoard();
  if (state_ != State::kDraining) return;
  if (stop.has_value()) return Finish(RunEnd::kStopped, *stop, now);
  if (completed_ < options_.run.rounds) return NextRound(now);
  Finish(RunEnd::kFinished, "", now);
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
  for (auto& [id, worker] : workers_) {
    if (!worker.parked.has_value()) continue;
    worker.told = true;
    host_.AnswerLease(std::exchange(worker.parked, std::nullopt)->ticket,
                      {.next = fleet::Next::kFinished});
  }
  host_.Ended(end, std::move(status), std::move(reason));
}

void RoundEngine::Tick(TimePoint now) {
  std::vector<WorkerId> lost;
  for (auto& [id, worker] : workers_) {
    if (worker.parked.has_value()) {
      worker.last_seen = now;  // an open call is a sign of life
      if (worker.parked->deadline <= now) {
        host_.AnswerLease(std::exchange(worker.parked, std::nullopt)->ticket,
                          {.next = fleet::Next::kWait});
      }
      if (worker.look_again <= now) worker.look_again = TimePoint::max();
    } else if (worker.last_seen + options_.lease_timeout <= now) {
      lost.push_back(id);
    }
  }
  for (const WorkerId id : lost) Lose(id, "nothing was heard of it for a lease's time", now);
  Requeue(table_.Expire(now), "lease ran out");
  evaluation_.Expire(now);
  if (state_ == State::kEnded) return;
  ServeParked(now);
  Advance(now);
}

TimePoint RoundEngine::NextDeadline() const {
  TimePoint next = std::min(table_.NextExpiry(), evaluation_.NextExpiry());
  for (const auto& [id, worker] : workers_) {
    next = std::min(next, worker.parked.has_value()
                              ? std::min(worker.parked->deadline, worker.look_again)
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
  switch (options_.run.cohort.weight) {
    case WeightPolicy::kUniform:
      return 1.0;
    case WeightPolicy::kTokens:
      return static_cast<double>(roster_.tokens()[client.value]);
    case WeightPolicy::kExamples:
      break;
  }
  return static_cast<double>(roster_.rows()[client.value]);
}

}  // namespace macaw::server
