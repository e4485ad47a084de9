// The end of a run: what is written of it, and when Wait hears of it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/budget.h"
#include "server/run_threads.h"

namespace macaw::server {
namespace {

// The time for workers to learn that the run is over.
constexpr Duration kEndNotice = std::chrono::seconds(3);

Outcome::Kind KindOf(RunEnd end) {
  return end == RunEnd::kFinished  ? Outcome::Kind::kFinished
         : end == RunEnd::kStopped ? Outcome::Kind::kStopped
                                   : Outcome::Kind::kInterrupted;
}

std::string NoLastCheckpoint(const std::string& run_dir, uint32_t rounds, const absl::Status& why) {
  return absl::StrCat("the result in ", run_dir, " is whole, but ", run_dir,
                      "/checkpoints has no checkpoint of round ", rounds,
                      ", from which the run could be given more rounds: ", why.message());
}

}  // namespace

void RunThreads::Begin(EndRun order) {
  const RunEnd end = order.end;
  ended_at_ = SteadyClock().Now();
  log_.Info(
      absl::StrCat("run_over rounds=", engine_.completed(), order.status.ok() ? "" : " failed"));
  static constexpr const char* kNames[] = {"finished", "stopped", "interrupted", "failed"};
  log::RunEnded over{.how = static_cast<log::End>(end),
                     .rounds = engine_.completed(),
                     .why = order.status.ok() ? order.reason : std::string(order.status.message()),
                     .states = engine_.state_digest().value_or(Digest())};
  ended_how_ = kNames[static_cast<int>(end)];
  ended_why_ = over.why;
  SummaryFacts facts{
      .program = options_.program,
      .name = options_.run.name,
      .algorithm = options_.run.algorithm.name,
      .adapters = absl::StrJoin(options_.run.model.adapters, "\n"),
      .settings = options_.settings,
      .inputs = options_.inputs,
      .seed = options_.run.seed,
      .data_digest = DataDigest(),
      .end = kNames[static_cast<int>(end)],
      .reason = std::move(order.reason),
      .by_caller = order.by_caller,
      .rounds = engine_.completed(),
      .seconds = Elapsed(),
      .session_seconds = ToSeconds(*ended_at_ - first_lease_at_.value_or(*ended_at_)),
      .session_rounds = engine_.completed() - first_round_,
      .stop_metric = options_.config.stop.metric,
      .best_model_round = options_.config.stop.patience > 0 ? early_stopping_.best_round() : 0,
      .delta = options_.run.privacy.delta,
      .profiles = engine_.profiles(),
      .bounded_channels = bounded_};
  if (options_.config.stop.patience > 0) {
    facts.chooses = [this](Round round) {
      return RegularEvaluationDue(options_.run, round, options_.stop_after);
    };
  }
  for (const auto& [session, use] : node_use_) {
    facts.worker_memory.push_back(use.memory);
    facts.sent_bytes += use.sent;
    facts.received_bytes += use.received;
  }
  facts.state_digest = engine_.state_digest();
  Checkpoint checkpoint = CheckpointOf(Round(engine_.completed()), StateVersions::Staged::kLeftOut);
  if (owed_row_.has_value()) checkpoint.owed_row = owed_row_->Text();
  checkpoint.owed_contributions = owed_contributions_;
  // For an interrupted run, the checkpoint is written first, because its results can be made again.
  // For any other run it is written last, so that a run whose checkpoint is at the last round has
  // all its results. A failed run keeps its old checkpoint, so that a resume repeats what led to
  // the failure. A resume that is interrupted before it has done anything leaves the folder's
  // result. All is of the last complete round, also if phases of the open one have been applied.
  RunWriter::Ending ending{.status = std::move(order.status),
                           .over = std::move(over),
                           .has_checkpoint = !checkpoint.data_digest.IsZero(),
                           .checkpoint_first = end == RunEnd::kInterrupted,
                           .has_result = !(options_.resume && end == RunEnd::kInterrupted &&
                                           !has_rows_ && engine_.completed() == first_round_),
                           .checkpoint = std::move(checkpoint),
                           .facts = std::move(facts)};
  PostSums([this, end, ending = std::move(ending)]() mutable {
    const absl::StatusOr<bool> between_rounds = keeper_.LeaveRound();
    if (ending.status.ok()) ending.status = between_rounds.status();
    const bool whole = between_rounds.value_or(false);
    ending.has_checkpoint = ending.has_checkpoint && whole;
    ending.checkpoint.state = keeper_.Save();
    ending.split = split_;
    const LayoutPtr& sent = split_ != nullptr ? split_->parts().trained.layout() : layout_;
    ending.model = FlatVector::CopyOf(keeper_.Model(), sent);
    const ConstVectorView model = std::as_const(ending.model).view();
    ending.facts.model_digest =
        DigestOfTensors(split_ != nullptr ? split_->Tensors(model) : TensorsOf(model));
    for (const Unlearning::Model& one : keeper_.Unlearned())
      ending.unlearned.push_back({one.client, FlatVector::CopyOf(one.model, sent)});
    for (const ConstVectorView more : keeper_.MoreModels())
      ending.more_models.push_back(FlatVector::CopyOf(more, layout_));
    ending.facts.parameters = layout_->count();
    ending.facts.base_bytes = split_ != nullptr ? split_->base().size : 0;
    if (options_.run.privacy.on()) {
      ending.facts.epsilon = [this, rounds = ending.checkpoint.round.value] {
        return EpsilonOf(options_.run, rounds);
      };
    }
    if (whole) ending.over.model = ending.facts.model_digest;
    ending.since_start = SteadyClock().Now() - started_;
    ending.seconds = Elapsed();
    Outcome outcome{.kind = KindOf(end),
                    .rounds = ending.checkpoint.round.value,
                    .reason = ending.facts.reason};
    writer_.Finish(
        std::move(ending), [this, outcome = std::move(outcome)](RunWriter::Ended ended) mutable {
          if (!ended.result.ok()) return SetOutcome(std::move(ended.result));
          if (!ended.checkpoint.ok()) {
            outcome.warning = NoLastCheckpoint(options_.run_dir, outcome.rounds, ended.checkpoint);
          }
          SetOutcome(std::move(outcome));
        });
  });
}

void RunThreads::Interrupt() {
  loop_.Post([this] { InterruptNow(); });
}

void RunThreads::InterruptNow() { engine_.caught_up() ? Carry(engine_.Interrupt()) : SuspendNow(); }

void RunThreads::Suspend() {
  loop_.Post([this] { durable_commits_ ? SuspendNow() : InterruptNow(); });
}

void RunThreads::SuspendNow() {
  if (ended_at_.has_value() || suspended_) return;
  log_.Info(absl::StrCat("suspended rounds=", engine_.completed()));
  StopAnswering();
  writer_.After(RunWriter::Safe::kFromTheMachine,
                [this, rounds = engine_.completed()](const absl::Status& written) {
                  events_.Close();
                  absl::MutexLock lock(&mutex_);
                  reported_ = true;
                  if (!written.ok()) {
                    outcome_ = written;
                  } else {
                    outcome_ = Outcome{.kind = Outcome::Kind::kSuspended, .rounds = rounds};
                  }
                });
}

void RunThreads::StopAnswering() {
  suspended_ = true;
  for (auto& [ticket, lease] : std::exchange(leases_, {})) std::move(lease.reply)(Suspended());
  for (auto& [ticket, commit] : std::exchange(commits_, {})) std::move(commit.reply)(Suspended());
}

void RunThreads::StopUnwritten(const absl::Status& why) {
  if (!durable_commits_) return Carry(engine_.Abort(why));
  if (ended_at_.has_value() || suspended_) return;
  log_.Error(absl::StrCat("not_written rounds=", engine_.completed(), " why=", why.message()));
  StopAnswering();
  events_.Close();
  absl::MutexLock lock(&mutex_);
  reported_ = true;
  outcome_ = why;
}

void RunThreads::SetOutcome(absl::StatusOr<Outcome> outcome) {
  events_.Close();
  absl::MutexLock lock(&mutex_);
  outcome_ = std::move(outcome);
  loop_.Post([this] { ReportOutcome(); });
}

void RunThreads::ReportOutcome() {
  if (!ended_at_.has_value()) return;
  absl::MutexLock lock(&mutex_);
  if (!outcome_.has_value()) return;
  reported_ = reported_ || engine_.nodes().everybody_told() ||
              SteadyClock().Now() >= *ended_at_ + kEndNotice;
}

TimePoint RunThreads::NextDeadline() {
  ReportOutcome();
  if (ended_at_.has_value()) return report_due() ? *ended_at_ + kEndNotice : TimePoint::max();
  return engine_.NextDeadline();
}

bool RunThreads::report_due() {
  absl::MutexLock lock(&mutex_);
  return outcome_.has_value() && !reported_;
}

absl::StatusOr<Outcome> RunThreads::Wait() {
  {
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return outcome_.has_value() && reported_;
    };
    mutex_.Await(absl::Condition(&over));
  }
  // The engine has given its last answers to the writer, which may not have passed all of them on.
  loop_.WaitIdle();
  writer_.WaitIdle();
  absl::MutexLock lock(&mutex_);
  return *outcome_;
}

}  // namespace macaw::server
