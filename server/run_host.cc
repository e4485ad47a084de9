// The EngineHost methods, and the results that come back from the other threads.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/status.h"
#include "server/budget.h"
#include "server/client_evaluation.h"
#include "server/run_threads.h"

namespace macaw::server {
namespace {

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

void RunThreads::Prepare(const PhaseOrder& order) {
  if (!first_lease_at_.has_value()) first_lease_at_ = round_started_ = SteadyClock().Now();
  PostSums([this, order] {
    absl::StatusOr<fleet::Broadcast> broadcast = keeper_.Open(order);
    if (broadcast.ok()) blobs_.Serve(broadcast->channels);
    const uint64_t most_sums_bytes = keeper_.MostSumsBytes().value_or(0);
    loop_.Post([this, order, most_sums_bytes, broadcast = std::move(broadcast)]() mutable {
      most_sums_bytes_ = most_sums_bytes;
      engine_.BroadcastReady(order.round, order.phase, std::move(broadcast), SteadyClock().Now());
    });
  });
}

void RunThreads::Add(Ticket commit) {
  auto node = decoded_.extract(commit);
  PostSums([this, commit, sum = std::move(node.mapped())]() mutable {
    const absl::Status status = keeper_.Add(std::move(sum));
    loop_.Post([this, commit, status] { engine_.PartAdded(commit, status, SteadyClock().Now()); });
  });
}

void RunThreads::AddAgain(const fleet::Part& part) {
  PostSums([this, part]() mutable {
    const absl::Status status = DecodeAndAdd(std::move(part));
    loop_.Post([this, status] { engine_.PartAdded(0, status, SteadyClock().Now()); });
  });
}

void RunThreads::Apply(PhaseReport report) {
  PostSums([this, report = std::make_shared<const PhaseReport>(std::move(report))] {
    if (!report->dropped.empty()) keeper_.DropSum();
    Closed closed{.another_phase = keeper_.Apply(report->round, report->phase),
                  .report = report,
                  .headroom = keeper_.headroom(),
                  .rule = keeper_.metrics()};
    if (closed.round_done()) {
      if (EvaluationDue(options_.run, report->round, options_.stop_after)) {
        closed.model = keeper_.ModelBlob();
        blobs_.Serve({*closed.model});
        closed.row = MetricsRow(options_.run.task, *report, closed.headroom, closed.rule);
        if (options_.run.evaluation.train) {
          closed.row->AddPenalty(options_.run.local.weight_decay, keeper_.Model());
        }
      }
      if (options_.stepwise) closed.shown = keeper_.ModelBlob();
      const uint32_t every = options_.config.checkpoint_every;
      // Ended keeps that state.
      const bool last =
          report->round.value == options_.run.rounds || report->round.value == options_.stop_after;
      if (every > 0 && report->round.value % every == 0 && !last) closed.state = keeper_.Save();
    }
    loop_.Post([this, closed = std::move(closed)]() mutable { OnClosed(std::move(closed)); });
  });
}

std::optional<std::string> RunThreads::Evaluated(const EvaluationSums& sums) {
  const training::ClassCounts counts = training::ClassCountsOf(options_.run);
  owed_row_->AddEvaluation(sums, counts, ConceptGroups(options_.run.transform, options_.run.seed));
  const MetricsRow row = *std::exchange(owed_row_, std::nullopt);
  if (counts.whole_matrix()) writer_.Confusion(ConfusionText(sums, counts));
  if (std::string text = ClientEvaluationText(sums, options_.run.task); !text.empty())
    writer_.ClientEvaluation(std::move(text));
  WriteRow([row] { return row.Text(); });
  const std::optional<std::string> stop = ObserveForStop(sums.round, row);
  if (!sums.given_up.empty()) {
    log_.Warning(absl::StrCat("evaluation_without round=", sums.round.value, " clients=",
                              sums.given_up.size(), " first=", sums.given_up.front().value,
                              ": their states could not be read, or their owners decline"));
  }
  Record(log::Evaluated{.round = sums.round, .stop = stop.value_or("")});
  return stop;
}

std::optional<std::string> RunThreads::EvaluatedBefore(Round round) {
  owed_row_.reset();
  const std::string text = past_rows_.at(round);
  WriteRow([text] { return text; });
  const std::optional<MetricsRow> row = MetricsRow::Parse(options_.run.task, text);
  return row.has_value() ? ObserveForStop(round, *row) : std::nullopt;
}

void RunThreads::Ended(RunEnd end, absl::Status status, std::string reason) {
  ended_at_ = SteadyClock().Now();
  log_.Info(absl::StrCat("run_over rounds=", engine_.completed(), status.ok() ? "" : " failed"));
  static constexpr const char* kNames[] = {"finished", "stopped", "interrupted", "failed"};
  log::RunEnded over{.how = static_cast<log::End>(end),
                     .rounds = engine_.completed(),
                     .why = status.ok() ? reason : std::string(status.message()),
                     .states = engine_.state_digest().value_or(Digest())};
  ended_how_ = kNames[static_cast<int>(end)];
  ended_why_ = over.why;
  SummaryFacts facts{
      .name = options_.run.name,
      .algorithm = options_.run.algorithm.name,
      .settings = options_.settings,
      .seed = options_.run.seed,
      .data_digest = DataDigest(),
      .end = kNames[static_cast<int>(end)],
      .reason = reason,
      .seconds = Elapsed(),
      .session_seconds = ToSeconds(*ended_at_ - first_lease_at_.value_or(*ended_at_)),
      .session_rounds = engine_.completed() - first_round_,
      .stop_metric = options_.config.stop.metric,
      .best_model_round = options_.config.stop.patience > 0 ? early_stopping_.best_round() : 0,
      .delta = options_.run.privacy.delta,
      .profiles = engine_.profiles()};
  for (const auto& [session, bytes] : worker_memory_) facts.worker_memory.push_back(bytes);
  facts.state_digest = engine_.state_digest();
  Checkpoint checkpoint = CheckpointOf(Round(engine_.completed()), StateVersions::Staged::kLeftOut);
  if (owed_row_.has_value()) checkpoint.owed_row = owed_row_->Text();
  // For an interrupted run, the checkpoint is written first, because its results can be made again.
  // For any other run it is written last, so that a run whose checkpoint is at the last round has
  // all its results. A failed run keeps its old checkpoint, so that a resume repeats what led to
  // the failure.
  RunWriter::Ending ending{
      .status = std::move(status),
      .has_checkpoint = !checkpoint.data_digest.IsZero() && !engine_.mid_round(),
      .checkpoint_first = end == RunEnd::kInterrupted,
      .checkpoint = std::move(checkpoint),
      .facts = std::move(facts)};
  PostSums([this, end, whole = !engine_.mid_round(), over = std::move(over),
            ending = std::move(ending)]() mutable {
    ending.checkpoint.state = keeper_.Save();
    const LayoutPtr layout = keeper_.Layouts().front();
    ending.model = FlatVector::CopyOf(keeper_.Model(), layout);
    ending.facts.model_digest = DigestOfValues(ending.model.view());
    ending.facts.parameters = layout->count();
    if (options_.run.privacy.on()) {
      ending.facts.epsilon = [this, rounds = ending.checkpoint.round.value] {
        return EpsilonOf(options_.run, rounds);
      };
    }
    if (whole) over.model = ending.facts.model_digest;
    Record(std::move(over));
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

void RunThreads::JournalWhatItIsAbout(const log::Record& record) {
  if (const auto* joined = std::get_if<log::NodeJoined>(&record)) {
    writer_.Node({.node = joined->node,
                  .session = engine_.nodes().At(joined->node).session,
                  .request = *registering_});
  } else if (const auto* accepted = std::get_if<log::Accepted>(&record)) {
    fleet::Part part = *committing_->part;
    std::erase_if(part.left_out, [&](const fleet::LeftOut& left) {
      return std::ranges::none_of(accepted->given_up, [&](const log::GivenUp& given_up) {
        return given_up.attempt == left.attempt;
      });
    });
    writer_.Part({.node = accepted->node,
                  .node_name = engine_.nodes().At(accepted->node).name,
                  .commit = accepted->commit,
                  .part = std::move(part)});
  }
}

absl::Status RunThreads::DecodeAndAdd(fleet::Part part) {
  const auto place = past_sums_.find(part.sums.digest);
  if (place == past_sums_.end()) {
    return absl::DataLossError(absl::StrCat("the journal lacks sums of round ", part.round.value));
  }
  MACAW_ASSIGN_OR_RETURN(part.sums, ReadBlob(place->second, part.sums.digest));
  MACAW_ASSIGN_OR_RETURN(aggregation::ExactSum sum, keeper_.Decode(part));
  return keeper_.Add(std::move(sum));
}

std::optional<std::string> RunThreads::ObserveForStop(Round round, const MetricsRow& row) {
  if (!options_.config.stop.active()) return std::nullopt;
  const auto value = row.Get(options_.config.stop.metric);
  const std::optional<fleet::Blob> model = std::exchange(observed_model_, std::nullopt);
  if (!value.has_value()) return std::nullopt;
  std::optional<std::string> stop = early_stopping_.Observe(round.value, *value);
  const bool best = early_stopping_.best_round() == round.value;
  if (best && options_.config.stop.patience > 0 && model.has_value())
    writer_.Best(round, *model, layout_);
  return stop;
}

void RunThreads::OnClosed(Closed closed) {
  const PhaseReport& report = *closed.report;
  const TimePoint now = SteadyClock().Now();
  writer_.Phase(closed.report, started_, now);
  if (closed.another_phase.ok() && !engine_.redoing()) {
    // Written before the checkpoint, because the log must have every round of a checkpoint.
    Record(log::Closed{.round = report.round,
                       .phase = report.phase,
                       .last = closed.round_done(),
                       .counted = report.records.size(),
                       .left_out = report.left_out.size(),
                       .requeued = report.requeued,
                       .seconds = closed.round_done() ? ToSeconds(now - round_started_) : 0,
                       .model = closed.model.has_value() ? closed.model->digest : Digest()});
  }
  if (closed.round_done()) {
    round_started_ = now;
    if (options_.config.client_records) {
      writer_.Clients(report.round, report.records, options_.run.task);
    }
    if (closed.shown.has_value())  // before the round's row, whose reader may ask for the model
      writer_.RoundModel(report.round, *std::move(closed.shown), layout_);
    Checkpoint checkpoint;
    if (closed.state.has_value()) {
      checkpoint = CheckpointOf(report.round, StateVersions::Staged::kIncluded);
      checkpoint.state = *std::move(closed.state);
      if (closed.row.has_value()) checkpoint.owed_row = closed.row->Text();
    }
    if (closed.row.has_value()) {
      owed_row_ = *std::move(closed.row);
      if (options_.config.stop.active()) observed_model_ = closed.model;
    } else {
      // Its statistics are computed on the writer's thread, so the next round need not wait.
      WriteRow([task = options_.run.task, report = closed.report, headroom = closed.headroom,
                rule = closed.rule] { return MetricsRow(task, *report, headroom, rule).Text(); });
    }
    if (checkpoint.round.value > 0) {
      writer_.Keep(std::move(checkpoint), [this](Round oldest) {
        loop_.Post([this, oldest] { engine_.CheckpointsFrom(oldest); });
      });
    }
  }
  engine_.Applied(std::move(closed.another_phase), std::move(closed.model), SteadyClock().Now());
}

void RunThreads::WriteRow(std::function<std::string()> text) {
  writer_.Row([this, text = std::move(text)] {
    std::string row = text();
    latest_row_.Set(row);
    if (options_.on_row) options_.on_row(row);
    return row;
  });
}

Checkpoint RunThreads::CheckpointOf(Round round, StateVersions::Staged staged) {
  return {.round = round,
          .fingerprint = Fingerprint(options_.run),
          .data_digest = DataDigest(),
          .profiles = engine_.profiles(),
          .seconds = Elapsed(),
          .run_id = run_id_,
          .versions = engine_.SnapshotVersions(staged)};
}

void RunThreads::SetOutcome(absl::StatusOr<Outcome> outcome) {
  events_.Close();
  absl::MutexLock lock(&mutex_);
  outcome_ = std::move(outcome);
  loop_.Post([this] { SayFarewell(); });
}

void RunThreads::TellWhatIsWaitedFor(const log::Record& record) const {
  if (const auto* waiting = std::get_if<log::Waiting>(&record)) {
    log_.Info(absl::StrCat("waiting_for_clients round=", waiting->round.value,
                           " present=", waiting->present, " needed=", waiting->needed));
  } else if (const auto* declined = std::get_if<log::NodeDeclined>(&record)) {
    log_.Info(declined->why.empty() ? absl::StrCat("node_works_again name=", declined->name)
                                    : absl::StrCat("node_declines name=", declined->name,
                                                   " reason=\"", declined->why, "\""));
  } else if (const auto* extended = std::get_if<log::Extended>(&record)) {
    log_.Info(absl::StrCat("deadline_extended round=", extended->round.value,
                           " counted=", extended->counted, " needed=", extended->needed,
                           " missing=", extended->missing));
  } else if (const auto* lost = std::get_if<log::RoundLost>(&record);
             lost != nullptr && lost->dropped) {
    log_.Warning(absl::StrCat("round_dropped ", lost->why));
  }
}

void RunThreads::TellWhoFailed(const fleet::HeartbeatRequest& request) const {
  constexpr size_t kMost = 4;  // lines for each heartbeat
  const Node* const node = engine_.nodes().Find(request.session);
  for (size_t i = 0; node != nullptr && i < std::min(kMost, request.left_out.size()); ++i) {
    const fleet::LeftOut& left = request.left_out[i];
    log_.Warning(absl::StrCat("client_left_out client=", left.attempt.client.value,
                              " worker=", node->name, " reason=", log::NameOf(left.reason),
                              " why=\"", absl::StrReplaceAll(left.message, {{"\n", " "}}), "\""));
  }
}

void RunThreads::Record(log::Record record) {
  TellWhatIsWaitedFor(record);
  if (durable_commits_) JournalWhatItIsAbout(record);
  writer_.Record(std::move(record), SteadyClock().Now() - started_, Elapsed());
}

}  // namespace macaw::server
