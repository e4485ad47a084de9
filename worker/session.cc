#include "worker/session.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/around/channels.h"
#include "core/executor.h"
#include "core/logging.h"
#include "core/memory.h"
#include "core/pause.h"
#include "core/status.h"
#include "training/api/round_local.h"
#include "worker/downloads.h"
#include "worker/lasting_fault.h"
#include "worker/patient_calls.h"
#include "worker/slot_pool.h"

namespace macaw::worker {
namespace {

constexpr Duration kPoll = std::chrono::seconds(30);
// At most this long between two heartbeats, unless the server asks for fewer.
constexpr Duration kPulse = std::chrono::seconds(1);
// Counts of classes in a commit: 2 MB of a message of 4.
constexpr size_t kMostCounts = 400'000;
// For the mean time of a request for work: the weight of the newest time, and the limit above which
// a time means a broken connection.
constexpr double kLeaseMemory = 0.1, kLongestAsk = 1;

// Sends heartbeats on a thread of its own until destroyed. `beat` returns how long to wait for the
// next heartbeat, or nothing to stop.
class Heart {
 public:
  explicit Heart(std::function<std::optional<Duration>()> beat)
      : thread_([beat = std::move(beat)](const std::stop_token& stop) {
          NameThisThread("heartbeat");
          std::optional<Duration> pause = beat();
          while (pause.has_value() && !PauseUnlessStopped(stop, *pause)) pause = beat();
        }) {}

 private:
  std::jthread thread_;
};

class Session {
 public:
  Session(const SessionParts& parts, const fleet::RegisterReply& registration, std::stop_token stop)
      : options_(parts.options),
        dataset_(parts.dataset),
        link_(parts.link),
        context_(parts.context),
        marker_(parts.marker),
        availability_(parts.availability),
        demand_(parts.demand),
        commits_(parts.commits),
        sum_form_(parts.sum_form >= static_cast<uint32_t>(aggregation::SumForm::kCompact) &&
                          !link_.shares_memory()
                      ? aggregation::SumForm::kCompact
                      : aggregation::SumForm::kAligned),
        knows_unsaid_(parts.sum_form >= static_cast<uint32_t>(aggregation::SumForm::kCompact)),
        session_(registration.session),
        longest_pulse_(registration.heartbeat_every),
        pulse_(std::min(longest_pulse_, kPulse)),
        stop_(std::move(stop)),
        calls_({.reconnect_for = options_.reconnect_for,
                .longest_pause = options_.longest_pause,
                .reconnect_every = registration.reconnect_every,
                .seed = parts.seed},
               stop_),
        downloads_(link_, calls_, context_, options_.scratch_dir) {}

  absl::StatusOr<SessionEnd> Run() {
    MACAW_ASSIGN_OR_RETURN(
        pool_, SlotPool::Start(context_, dataset_, options_.slots,
                               {.config = options_.emulation,
                                .first_slot = options_.first_slot,
                                .run_slots = std::max(options_.run_slots, options_.slots)},
                               marker_));
    absl::StatusOr<SessionEnd> end = SessionEnd::kLost;
    {
      // Gives everything back before it closes the link, which wakes a call that is waiting for
      // work.
      const std::stop_callback leave(stop_, [this] {
        pool_->Interrupt();
        (void)link_.Release(
            {.session = session_, .leaving = true});  // a lost message costs one lease's time
        link_.Shutdown();
      });
      RetryPace pace = calls_.NewPace();
      Heart heart([this, &pace] { return Beat(pace); });
      end = Work();
    }
    if (end.ok() && *end == SessionEnd::kRunOver)
      SendHeartbeat().IgnoreError();  // reports the memory a last time
    // Nobody starts it again soon, so its clients need not wait for their leases to run out.
    if (IsLastingFault(end.status())) (void)link_.Release({.session = session_, .leaving = true});
    pool_->Clear();
    return end;
  }

 private:
  // Asks for work while slots still have some, so that a slot rarely waits for a round trip. If the
  // server says so, it asks only with an idle slot. Commits when told to, and asks for work with
  // the commit.
  absl::StatusOr<SessionEnd> Work() {
    bool commit_due = false;
    while (true) {
      if (stop_.stop_requested()) return SessionEnd::kStopRequested;
      if (over_) return SessionEnd::kRunOver;
      if (lost_) return SessionEnd::kLost;
      MACAW_RETURN_IF_ERROR(pool_->error());
      std::optional<fleet::LeaseReply> reply;
      if (commit_due) {
        if (!pool_->WaitIdleOrTrained()) continue;
        if (const std::vector<Attempt> trained = pool_->Trained(); !trained.empty()) {
          MACAW_ASSIGN_OR_RETURN(const fleet::LeaseReply answer, AskForRound(trained));
          if (answer.next == fleet::Next::kFinished) return SessionEnd::kRunOver;
          if (answer.next == fleet::Next::kRegister) return SessionEnd::kLost;
          TakeRound(trained, answer);
          continue;
        }
        MACAW_ASSIGN_OR_RETURN(reply, Commit());
        commit_due = false;
      } else {
        const bool due =
            when_idle_
                ? pool_->WaitForIdleSlot()
                : pool_->WaitForQueueBelow(options_.slots - 1 + pool_->QueueFor(LongLease()));
        if (!due) continue;
        MACAW_ASSIGN_OR_RETURN(reply, Lease());
      }
      if (!reply.has_value()) continue;
      when_idle_ = reply->when_idle;
      if (context_.states != nullptr && !reply->deletable.empty())
        context_.states->Delete(std::move(reply->deletable));
      switch (reply->next) {
        case fleet::Next::kFinished:
          return SessionEnd::kRunOver;
        case fleet::Next::kRegister:
          return SessionEnd::kLost;
        case fleet::Next::kWait:
          when_idle_ = true;  // nothing was left to ask for in advance
          break;
        case fleet::Next::kCommit:
          commit_due = true;
          break;
        case fleet::Next::kWork: {
          MACAW_ASSIGN_OR_RETURN(commit_due, Accept(*reply));
          break;
        }
      }
    }
  }

  // Whether the owner lets the node work now, for what it asks and begins next.
  void LookWhetherAvailable() {
    if (availability_ == nullptr) return;
    Availability::Answer answer = availability_->Now();
    if (answer.declined != available_.declined) {
      log_.Info(answer.available() ? "works_again"
                                   : absl::StrCat("declines reason=\"", answer.declined, "\""));
    }
    available_ = std::move(answer);
  }

  // The model of the lease's work; null: it has none.
  static const fleet::Blob* ModelOf(const fleet::LeaseReply& reply) {
    if (reply.training.has_value() && !reply.training->broadcast.channels.empty())
      return &reply.training->broadcast.channels[0];
    const bool evaluates = reply.evaluation.has_value() && reply.evaluation->model.named();
    return evaluates ? &reply.evaluation->model : nullptr;
  }

  // Tells what work like this lease's moves: with the frozen tensors, until they are here or
  // `begun` to be fetched; always with a server of release 0.1.0, which sends whole models.
  void ExpectTraffic(const fleet::LeaseReply& reply, bool begun) {
    const fleet::Blob* const model = ModelOf(reply);
    if (availability_ == nullptr || model == nullptr) return;
    const bool apart = model->has_parts() && (begun || downloads_.HasBase(model->base().digest));
    availability_->Expect(
        {.up = demand_.bytes_up, .down = demand_.bytes_down + (apart ? 0 : demand_.base_bytes)});
  }

  // How long the server may keep a call for work. A node that declines asks again when it may work.
  Duration LongestPoll() const {
    if (available_.available()) return kPoll;
    return std::clamp<Duration>(available_.ask_again, kPulse, kPoll);
  }

  // Gives leased work back. A lost message costs one lease's time.
  void GiveBack(const Unbegun& work) {
    if (work.empty()) return;
    (void)link_.Release({.session = session_, .attempts = work.attempts, .tasks = work.tasks});
  }

  fleet::LeaseRequest Ask(uint32_t idle, size_t held) const {
    fleet::LeaseRequest request{.session = session_,
                                .wanted = idle,
                                .running = static_cast<uint32_t>(held),
                                .declined = available_.declined,
                                .wait = LongestPoll()};
    request.have = downloads_.Have();
    return request;
  }

  // Few requests take longer (Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988).
  double LongLease() const { return lease_seconds_ + 4 * lease_deviation_; }

  absl::StatusOr<fleet::LeaseReply> Lease() {
    LookWhetherAvailable();
    const fleet::LeaseRequest request = Ask(pool_->idle(), pool_->held());
    const TimePoint asked = SteadyClock().Now();
    absl::StatusOr<fleet::LeaseReply> reply = calls_.Repeat([&] { return link_.Lease(request); });
    leased_ = SteadyClock().Now();
    // Only a request in advance is answered at once, so only its time says how long a request
    // takes.
    if (request.wanted == 0) {
      const double took = std::min(ToSeconds(leased_ - asked), kLongestAsk);
      lease_deviation_ += kLeaseMemory * (std::fabs(took - lease_seconds_) - lease_deviation_);
      lease_seconds_ += kLeaseMemory * (took - lease_seconds_);
    }
    return reply;
  }

  // Asks in which round the clients count that are trained.
  absl::StatusOr<fleet::LeaseReply> AskForRound(const std::vector<Attempt>& trained) {
    LookWhetherAvailable();
    fleet::LeaseRequest request = Ask(0, pool_->held());
    request.wait = kPoll;  // what has begun is finished, whether the node may work or not
    request.trained = trained;
    return calls_.Repeat([&] { return link_.Lease(request); });
  }

  // Lets the clients go on that the answer names. kCommit: they do not count any more; kWait: it is
  // not their turn yet.
  void TakeRound(const std::vector<Attempt>& trained, const fleet::LeaseReply& answer) {
    if (answer.next == fleet::Next::kCommit) {
      for (const Attempt& attempt : trained) {
        log_.Warning(absl::StrCat("client_not_counted client=", attempt.client.value));
        pool_->Arrive(attempt, nullptr);
      }
      return;
    }
    if (!answer.training.has_value()) return;
    const fleet::TrainingLease& lease = *answer.training;
    for (const fleet::Assignment& one : lease.assignments) {
      const Attempt attempt{one.client, one.fence};
      if (std::ranges::find(trained, attempt) == trained.end() || begun_ == nullptr) continue;
      auto round = std::make_shared<PhaseContext>(*begun_);
      round->round = lease.round;
      round->phase = lease.phase;
      round->staleness = one.staleness;
      round->named = lease.broadcast.name;
      round->order = OrderOf(lease);
      round->arrives = false;
      pool_->Arrive(attempt, std::move(round));
    }
  }

  static aggregation::GridOrder OrderOf(const fleet::TrainingLease& lease) {
    return {.max_weight = lease.max_weight,
            .total_weight = lease.total_weight,
            .max_multiplicity = lease.max_multiplicity,
            .total_multiplicity = lease.total_multiplicity};
  }

  // Returns true if the worker should commit after this work, without asking again.
  absl::StatusOr<bool> Accept(const fleet::LeaseReply& reply) {
    ExpectTraffic(reply, /*begun=*/false);
    LookWhetherAvailable();  // the call may have taken long
    if (!available_.available()) {
      GiveBack(WorkOf(reply));
      return false;
    }
    ExpectTraffic(reply, /*begun=*/true);
    MACAW_RETURN_IF_ERROR(CheckPlaces(reply, dataset_.info().clients));
    if (reply.evaluation.has_value()) {
      absl::StatusOr<std::shared_ptr<const EvaluationContext>> evaluation = Open(*reply.evaluation);
      // A model that is no longer served belongs to a round that ended long ago. Its tasks have
      // gone to others.
      if (!evaluation.ok() && !absl::IsNotFound(evaluation.status())) return evaluation.status();
      if (evaluation.ok()) {
        Expect(reply.evaluation->tasks);
        pool_->Enqueue(*std::move(evaluation), reply.evaluation->tasks);
      }
    }
    if (reply.training.has_value()) {
      const absl::StatusOr<std::vector<std::shared_ptr<const PhaseContext>>> opened =
          Open(*reply.training);
      if (absl::IsNotFound(opened.status())) {  // the lease belongs to a round that ended long ago
        GiveBack({.attempts = WorkOf(reply).attempts});
        return pool_->held() == 0;
      }
      MACAW_RETURN_IF_ERROR(opened.status());
      Expect(reply.training->assignments);
      if (reply.training->arrives && !opened->empty()) begun_ = opened->front();
      for (const std::shared_ptr<const PhaseContext>& phase : *opened)
        pool_->Enqueue(phase, reply.training->assignments, leased_);
      return reply.training->last;
    }
    // Only evaluations: their results should not wait for the next round.
    return pool_->held() == 0;
  }

  // A server may ask for the clients that this node registered with, and for nobody else's rows.
  static absl::Status CheckPlaces(const fleet::LeaseReply& reply, uint64_t clients) {
    const auto check = [clients](uint64_t place) {
      return place < clients ? absl::OkStatus()
                             : absl::PermissionDeniedError(
                                   absl::StrCat("the server asks for the rows of client ", place,
                                                " of this node, which registered ", clients));
    };
    if (reply.training.has_value()) {
      for (const fleet::Assignment& assignment : reply.training->assignments)
        MACAW_RETURN_IF_ERROR(check(assignment.place));
    }
    if (!reply.evaluation.has_value()) return absl::OkStatus();
    for (const fleet::EvaluationTask& task : reply.evaluation->tasks) {
      using fleet::EvaluationKind;
      const bool of_a_client = task.kind != EvaluationKind::kCentralTest &&
                               task.kind != EvaluationKind::kCentralValidation &&
                               task.kind != EvaluationKind::kCentralBackdoor &&
                               task.kind != EvaluationKind::kStateDigest;
      if (of_a_client) MACAW_RETURN_IF_ERROR(check(task.place));
    }
    return absl::OkStatus();
  }

  // What the slots will read next, in the order of their queue.
  template <typename Work>
  void Expect(const std::vector<Work>& work) {
    if (context_.states == nullptr) return;
    std::vector<Attempt> versions;
    for (const Work& item : work) versions.push_back({item.client, item.state_version});
    context_.states->Expect(versions);
  }

  static Unbegun WorkOf(const fleet::LeaseReply& reply) {
    Unbegun work;
    if (reply.evaluation.has_value()) {
      for (const fleet::EvaluationTask& task : reply.evaluation->tasks)
        work.tasks.push_back(task.fence);
    }
    if (reply.training.has_value()) {
      for (const fleet::Assignment& assignment : reply.training->assignments)
        work.attempts.push_back({assignment.client, assignment.fence});
    }
    return work;
  }

  // The phase of the lease, for each age of the models from which its clients train.
  absl::StatusOr<std::vector<std::shared_ptr<const PhaseContext>>> Open(
      const fleet::TrainingLease& lease) {
    if (!phases_.empty() && (phases_[0]->round != lease.round || phases_[0]->phase != lease.phase))
      phases_.clear();
    std::vector<std::shared_ptr<const PhaseContext>> open;
    const auto add = [&](uint32_t staleness, const fleet::Broadcast& broadcast) -> absl::Status {
      MACAW_ASSIGN_OR_RETURN(open.emplace_back(), Open(lease, staleness, broadcast));
      return absl::OkStatus();
    };
    const auto newest = [](const fleet::Assignment& one) { return one.staleness == 0; };
    if (std::ranges::any_of(lease.assignments, newest))
      MACAW_RETURN_IF_ERROR(add(0, lease.broadcast));
    downloads_.ExpectModels(lease.older.size());
    for (const fleet::OlderModel& older : lease.older)
      MACAW_RETURN_IF_ERROR(add(older.staleness, older.broadcast));
    return open;
  }

  absl::StatusOr<std::shared_ptr<const PhaseContext>> Open(const fleet::TrainingLease& lease,
                                                           uint32_t staleness,
                                                           const fleet::Broadcast& broadcast) {
    const auto known = std::ranges::find(phases_, staleness, &PhaseContext::staleness);
    if (known != phases_.end()) return *known;
    auto phase = std::make_shared<PhaseContext>();
    phase->id = ++phase_ids_;
    phase->round = lease.round;
    phase->phase = lease.phase;
    phase->staleness = staleness;
    phase->named = lease.broadcast.name;
    phase->order = OrderOf(lease);
    phase->arrives = lease.arrives;
    phase->local = training::RoundLocal(context_.run, phase->work());
    phase->broadcast = broadcast;
    MACAW_RETURN_IF_ERROR(FetchChannels(*phase));
    phases_.push_back(std::move(phase));
    return phases_.back();
  }

  absl::StatusOr<std::shared_ptr<const EvaluationContext>> Open(
      const fleet::EvaluationLease& lease) {
    auto evaluation = std::make_shared<EvaluationContext>();
    evaluation->round = lease.round;
    evaluation->local = training::RoundLocal(context_.run, lease.round);
    if (!lease.model.named()) return evaluation;  // only states are asked for
    evaluation->blob = lease.model;
    if (context_.schema.models.empty()) {
      MACAW_ASSIGN_OR_RETURN(evaluation->model,
                             downloads_.Model(evaluation->blob, evaluation->part));
      return evaluation;
    }
    const std::vector<LayoutPtr> layouts(1 + context_.schema.models.size(), context_.spec.layout);
    MACAW_ASSIGN_OR_RETURN(evaluation->models, downloads_.Vectors(evaluation->blob, layouts));
    evaluation->model = evaluation->models[0];
    return evaluation;
  }

  // Gets the bytes of the phase's broadcast, and its views of them.
  absl::Status FetchChannels(PhaseContext& phase) {
    const std::vector<LayoutPtr> layouts = algorithms::DownLayouts(context_.schema, phase.phase);
    std::vector<fleet::Blob>& channels = phase.broadcast.channels;
    if (channels.size() != layouts.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the server sent ", channels.size(),
                                                     " channels where phase ", phase.phase.value,
                                                     " of the algorithm has ", layouts.size()));
    }
    downloads_.BeginLease(channels);
    std::vector<ConstVectorView> vectors(1);
    MACAW_ASSIGN_OR_RETURN(vectors[0], downloads_.Model(channels[0], phase.part));
    for (size_t i = 1; i < layouts.size(); ++i) {
      MACAW_ASSIGN_OR_RETURN(vectors.emplace_back(), downloads_.Vector(channels[i], layouts[i]));
    }
    phase.vectors = algorithms::ParallelToDown(context_.schema, phase.phase, vectors);
    return absl::OkStatus();
  }

  // Leaves out results whose counts of classes would not fit a message; the server hands those
  // tasks out again. It rarely happens, since it hands out few tasks with many counts.
  static void KeepToAMessage(std::vector<fleet::EvaluationResult>& results) {
    size_t counts = 0, kept = 0;
    while (kept < results.size() &&
           (kept == 0 || counts + results[kept].counts.size() <= kMostCounts))
      counts += results[kept++].counts.size();
    results.resize(kept);
  }

  // Commits everything that is finished. Asks for the next work in the last call. Nothing is held
  // and all slots are idle once it is answered. Returns the server's answer to that, if there is
  // one.
  absl::StatusOr<std::optional<fleet::LeaseReply>> Commit() {
    MACAW_ASSIGN_OR_RETURN(Harvest harvest, pool_->TakeHarvest());
    if (harvest.empty()) return std::nullopt;
    // States first: a state that a part names must be readable, whatever happens next.
    if (context_.states != nullptr) MACAW_RETURN_IF_ERROR(context_.states->Fence());
    LookWhetherAvailable();
    KeepToAMessage(harvest.evaluations);
    const bool together =
        harvest.phase != nullptr && (harvest.alone.empty() || !harvest.left_out.empty());
    bool first = true;
    while (true) {
      fleet::CommitRequest request;
      if (std::exchange(first, false)) {
        request.evaluations = std::move(harvest.evaluations);  // later ones would go to others
        if (together) {
          MACAW_ASSIGN_OR_RETURN(request.part, PartOf(harvest));
        }
      }
      if (!request.part.has_value() && !harvest.alone.empty()) {
        MACAW_ASSIGN_OR_RETURN(request.part, NextAlone(harvest));
      }
      const bool last = harvest.alone.empty();
      if (last) request.ask = Ask(options_.slots, 0);
      MACAW_ASSIGN_OR_RETURN(std::optional<fleet::LeaseReply> lease, Send(std::move(request)));
      const bool lost = lease.has_value() && lease->next == fleet::Next::kRegister;
      if (!last && !lost) continue;
      pool_->Settle();
      return lease;
    }
  }

  // A server of 0.1.0 takes no NaN for a metric that a program of the owner's has not said.
  static void SayZero(std::vector<double>& sums) {
    for (size_t i = 2; i < sums.size(); ++i) {
      if (std::isnan(sums[i])) sums[i] = 0;
    }
  }

  absl::StatusOr<fleet::Part> PartOf(const PhaseContext& phase,
                                     std::vector<fleet::ClientRecord> included,
                                     std::span<const aggregation::ExactSum> sums) const {
    fleet::Part part{.round = phase.round,
                     .phase = phase.phase,
                     .broadcast = phase.named,
                     .included = std::move(included)};
    for (fleet::ClientRecord& record : part.included) {
      if (knows_unsaid_) break;
      SayZero(record.sums);
      SayZero(record.personal_sums);
    }
    if (sums.empty()) return part;
    MACAW_ASSIGN_OR_RETURN(AlignedBuffer bytes,
                           aggregation::ExactSum::EncodeTogether(sums, sum_form_));
    part.sums = fleet::Blob::Of(std::move(bytes));
    return part;
  }

  // Of the clients that have one sum, and of those that were left out.
  absl::StatusOr<fleet::Part> PartOf(Harvest& harvest) const {
    MACAW_ASSIGN_OR_RETURN(fleet::Part part,
                           PartOf(*harvest.phase, std::move(harvest.included), harvest.sums));
    harvest.sums.clear();  // the upload of a large model may take long
    part.left_out = std::move(harvest.left_out);
    return part;
  }

  // Takes a client that is a part of its own.
  absl::StatusOr<fleet::Part> NextAlone(Harvest& harvest) const {
    const ClientAlone one = std::move(harvest.alone.back());
    harvest.alone.pop_back();
    return PartOf(*harvest.phase, {one.record}, {&one.sum, 1});
  }

  // One commit. Returns the answer to what it asks, if there is one.
  absl::StatusOr<std::optional<fleet::LeaseReply>> Send(fleet::CommitRequest request) {
    request.session = session_;
    request.commit_id = ++commits_;
    MACAW_ASSIGN_OR_RETURN(fleet::CommitReply reply,
                           calls_.Repeat([&] { return link_.Commit(request); }));
    leased_ = SteadyClock().Now();
    if (reply.verdict == fleet::Verdict::kRegister)
      return fleet::LeaseReply{.next = fleet::Next::kRegister};
    if (reply.verdict == fleet::Verdict::kRefused) {
      // The same work would be refused again. It is better to end with the reason than to train for
      // ever.
      return absl::AbortedError(absl::StrCat("the server refused a commit: ", reply.reason));
    }
    if (reply.verdict == fleet::Verdict::kStale) {
      // The server has taken the clients back; there is nothing to repeat here.
      log_.Warning(absl::StrCat("commit_turned_down ", reply.reason));
    }
    return std::move(reply.lease);
  }

  // As it was looked at last: the system counts the pages of large vectors one by one, which may
  // take a fiftieth of the time.
  uint64_t MemoryInUse() {
    const TimePoint now = SteadyClock().Now();
    if (now < look_at_memory_) return memory_;
    if (const auto bytes = ProportionalSetSize(); bytes.ok()) memory_ = *bytes;
    const TimePoint looked = SteadyClock().Now();
    look_at_memory_ = looked + 50 * (looked - now);
    return memory_;
  }

  absl::StatusOr<fleet::HeartbeatReply> SendHeartbeat() {
    fleet::HeartbeatRequest request{.session = session_,
                                    .held = pool_->Queued(),
                                    .progress = Progress(),
                                    .left_out = pool_->TakeLeftOut()};
    request.memory_bytes = MemoryInUse();
    const fleet::Traffic traffic = link_.traffic();
    request.sent_bytes = traffic.up - traffic_before_.up;
    request.received_bytes = traffic.down - traffic_before_.down;
    return link_.Heartbeat(request);
  }

  // Grows with every piece of work for this worker's leases.
  uint64_t Progress() const {
    const uint64_t states = context_.states == nullptr ? 0 : context_.states->work_done();
    return pool_->work_done() + states + link_.moved();
  }

  // When to send the next heartbeat: after a pause of `pace` if the server does not answer; nothing
  // if the session is over.
  std::optional<Duration> Beat(RetryPace& pace) {
    if (availability_ != nullptr && !availability_->Now().available())
      GiveBack(pool_->DropUnbegun());
    const absl::StatusOr<fleet::HeartbeatReply> reply = SendHeartbeat();
    // The working thread notices this by itself and decides.
    if (!reply.ok()) return std::max(pulse_, pace.Next());
    if (reply->heartbeat_every > Duration{})
      pulse_ = std::min(reply->heartbeat_every, longest_pulse_);
    pace = calls_.NewPace();
    if (reply->stop || !reply->known) {
      (reply->stop ? over_ : lost_) = true;
      pool_->Interrupt();
      return std::nullopt;
    }
    pool_->Drop(reply->dropped);
    return pulse_;
  }

  const Options& options_;
  const data::Dataset& dataset_;
  fleet::FleetLink& link_;
  const RunContext& context_;
  RunningMarker& marker_;
  Availability* const availability_;
  const Demand demand_;
  uint64_t& commits_;
  const aggregation::SumForm sum_form_;
  const bool knows_unsaid_;                                // whether the server is newer than 0.1.0
  const fleet::Traffic traffic_before_ = link_.traffic();  // of earlier sessions
  const SessionId session_;
  const Duration longest_pulse_;  // between two heartbeats, so that no lease expires
  Duration pulse_;                // the thread's that sends them, which has these, too:
  uint64_t memory_ = 0;
  TimePoint look_at_memory_{};
  const std::stop_token stop_;
  const Logger log_{"worker"};
  const PatientCalls calls_;
  Downloads downloads_;
  std::unique_ptr<SlotPool> pool_;
  Availability::Answer available_;  // as the working thread saw it last
  bool when_idle_ = false;          // whether the server asked for requests with an idle slot only
  // Moving means of the time of a request for work, and of how far a request is from that mean.
  double lease_seconds_ = 0, lease_deviation_ = 0;
  TimePoint leased_{};                                       // when the newest lease arrived
  uint64_t phase_ids_ = 0;                                   // given
  std::vector<std::shared_ptr<const PhaseContext>> phases_;  // of the open phase
  std::shared_ptr<const PhaseContext> begun_;  // of the newest client that will arrive
  std::atomic<bool> over_ = false;
  std::atomic<bool> lost_ = false;
};

}  // namespace

absl::StatusOr<SessionEnd> RunSession(const SessionParts& parts,
                                      const fleet::RegisterReply& registration,
                                      std::stop_token stop) {
  return Session(parts, registration, std::move(stop)).Run();
}

}  // namespace macaw::worker
