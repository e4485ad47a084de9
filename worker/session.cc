#include "worker/session.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "core/logging.h"
#include "core/status.h"
#include "worker/downloads.h"
#include "worker/harvest_commits.h"
#include "worker/heartbeats.h"
#include "worker/lasting_fault.h"
#include "worker/lease_contexts.h"
#include "worker/lease_time.h"
#include "worker/leased_work.h"
#include "worker/patient_calls.h"
#include "worker/slot_pool.h"

namespace macaw::worker {
namespace {

constexpr Duration kPoll = std::chrono::seconds(30);

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
        begins_(parts.begins),
        sum_form_(parts.sum_form >= static_cast<uint32_t>(aggregation::SumForm::kCompact) &&
                          !link_.shares_memory()
                      ? aggregation::SumForm::kCompact
                      : aggregation::SumForm::kAligned),
        registration_(registration),
        knows_unsaid_(parts.sum_form >= static_cast<uint32_t>(aggregation::SumForm::kCompact)),
        session_(registration.session),
        stop_(std::move(stop)),
        calls_({.reconnect_for = options_.reconnect_for,
                .longest_pause = options_.longest_pause,
                .reconnect_every = registration.reconnect_every,
                .seed = parts.seed},
               stop_),
        downloads_(link_, calls_, context_, options_.scratch_dir, options_.kept_models_bytes),
        contexts_(context_, downloads_) {}

  absl::StatusOr<SessionEnd> Run() {
    auto pool = SlotPool::Start(context_, dataset_, options_.slots,
                                {.config = options_.emulation,
                                 .first_slot = options_.first_slot,
                                 .run_slots = std::max(options_.run_slots, options_.slots)},
                                marker_);
    if (!pool.ok()) {
      // The server must not wait for a node without trainers.
      (void)link_.Release({.session = session_, .leaving = true});
      return pool.status();
    }
    pool_ = *std::move(pool);
    if (begins_ != nullptr) begins_();
    heartbeats_.emplace(link_, context_, calls_, *pool_, availability_, registration_);
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
      const std::jthread heart = heartbeats_->Start();
      end = Work();
    }
    if (end.ok() && *end == SessionEnd::kRunOver)
      heartbeats_->Send().IgnoreError();  // reports the memory a last time
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
      if (heartbeats_->over()) return SessionEnd::kRunOver;
      if (heartbeats_->lost()) return SessionEnd::kLost;
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
        const bool due = when_idle_ ? pool_->WaitForIdleSlot()
                                    : pool_->WaitForQueueBelow(options_.slots - 1 +
                                                               pool_->QueueFor(lease_time_.Long()));
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

  fleet::LeaseRequest Ask(uint32_t idle, size_t held) const {
    fleet::LeaseRequest request{.session = session_,
                                .wanted = idle,
                                .running = static_cast<uint32_t>(held),
                                .declined = available_.declined,
                                .wait = LongestPoll()};
    request.have = downloads_.Have();
    return request;
  }

  absl::StatusOr<fleet::LeaseReply> Lease() {
    LookWhetherAvailable();
    const fleet::LeaseRequest request = Ask(pool_->idle(), pool_->held());
    const TimePoint asked = SteadyClock().Now();
    absl::StatusOr<fleet::LeaseReply> reply = calls_.Repeat([&] { return link_.Lease(request); });
    leased_ = SteadyClock().Now();
    // Only a request in advance is answered at once, so only its time says how long a request
    // takes.
    if (request.wanted == 0) lease_time_.Took(ToSeconds(leased_ - asked));
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
      pool_->Arrive(attempt, RoundOfArrival(*begun_, lease, one));
    }
  }

  // Returns true if the worker should commit after this work, without asking again.
  absl::StatusOr<bool> Accept(const fleet::LeaseReply& reply) {
    ExpectTraffic(reply, /*begun=*/false);
    LookWhetherAvailable();  // the call may have taken long
    if (!available_.available()) {
      GiveBack(link_, session_, WorkOf(reply));
      return false;
    }
    ExpectTraffic(reply, /*begun=*/true);
    MACAW_RETURN_IF_ERROR(CheckPlaces(reply, dataset_.info().clients));
    if (reply.evaluation.has_value()) {
      absl::StatusOr<std::shared_ptr<const EvaluationContext>> evaluation =
          contexts_.Open(*reply.evaluation);
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
          contexts_.Open(*reply.training);
      if (absl::IsNotFound(opened.status())) {  // the lease belongs to a round that ended long ago
        GiveBack(link_, session_, {.attempts = WorkOf(reply).attempts});
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

  // What the slots will read next, in the order of their queue.
  template <typename Work>
  void Expect(const std::vector<Work>& work) {
    if (context_.states == nullptr) return;
    std::vector<Attempt> versions;
    for (const Work& item : work) versions.push_back({item.client, item.state_version});
    context_.states->Expect(versions);
  }

  // For a server of 0.1.0, which has fewer counts.
  void CountAsBefore(std::vector<fleet::EvaluationResult>& results) const {
    const auto classes = training::ClassCounts::Of(context_.run.evaluation.metrics,
                                                   context_.run.task, context_.spec.outputs);
    for (fleet::EvaluationResult& result : results) {
      if (result.counted.empty()) continue;
      training::SparseCounts counts{.at = std::move(result.counted), .count = {}};
      counts.count.assign(result.counts.begin(), result.counts.end());
      counts = classes.OfRelease010(counts);
      result.counted = std::move(counts.at);
      result.counts.assign(counts.count.begin(), counts.count.end());
    }
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
    contexts_.LetGoOfLarge(harvest.phase);
    if (!knows_unsaid_) CountAsBefore(harvest.evaluations);
    HarvestCommits commits(std::move(harvest), sum_form_, knows_unsaid_);
    while (true) {
      MACAW_ASSIGN_OR_RETURN(fleet::CommitRequest request, commits.Next());
      const bool last = !commits.more();
      // The answer to what it asks may take long, and a large part would stay here meanwhile.
      const bool large =
          request.part.has_value() && request.part->sums.size > options_.kept_models_bytes;
      if (last && !large) request.ask = Ask(options_.slots, 0);
      MACAW_ASSIGN_OR_RETURN(std::optional<fleet::LeaseReply> lease, Send(std::move(request)));
      const bool lost = lease.has_value() && lease->next == fleet::Next::kRegister;
      if (!last && !lost) continue;
      pool_->Settle();
      return lease;
    }
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

  const Options& options_;
  const data::Dataset& dataset_;
  fleet::FleetLink& link_;
  const RunContext& context_;
  RunningMarker& marker_;
  Availability* const availability_;
  const Demand demand_;
  uint64_t& commits_;
  const std::function<void()> begins_;
  const aggregation::SumForm sum_form_;
  const fleet::RegisterReply& registration_;
  const bool knows_unsaid_;  // whether the server is newer than 0.1.0
  const SessionId session_;
  const std::stop_token stop_;
  const Logger log_{"worker"};
  const PatientCalls calls_;
  Downloads downloads_;
  LeaseContexts contexts_;
  std::unique_ptr<SlotPool> pool_;
  std::optional<Heartbeats> heartbeats_;  // once there is a pool
  Availability::Answer available_;        // as the working thread saw it last
  bool when_idle_ = false;  // whether the server asked for requests with an idle slot only
  LeaseTime lease_time_;
  TimePoint leased_{};                         // when the newest lease arrived
  std::shared_ptr<const PhaseContext> begun_;  // of the newest client that will arrive
};

}  // namespace

absl::StatusOr<SessionEnd> RunSession(const SessionParts& parts,
                                      const fleet::RegisterReply& registration,
                                      std::stop_token stop) {
  return Session(parts, registration, std::move(stop)).Run();
}

}  // namespace macaw::worker
