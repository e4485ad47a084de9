// Carries out the effects of the engine's events, and gives the results back to the engine.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "server/client_evaluation.h"
#include "server/coarse_sums.h"
#include "server/contributions.h"
#include "server/run_threads.h"

namespace macaw::server {
namespace {

std::string AllBeginAnew(Round round) {
  return absl::StrCat(
      " then=\"the server keeps a sum of what all clients store, and would keep what is lost: after "
      "round ",
      round.value, " no client has a state, and the sum begins at zero\"");
}
constexpr char kStillSummed[] =
    " advice=\"the rule still counts what these clients had added, which biases the rounds that "
    "follow: begin the run again where that matters\"";

}  // namespace

void RunThreads::Carry(Effects effects) {
  if (suspended_) return;
  while (true) {
    for (Recorded& recorded : effects.records) Write(std::move(recorded));
    for (Reply& reply : effects.replies) {
      std::visit([&](auto& answer) { Send(reply.ticket, std::move(answer)); }, reply.answer);
    }
    for (Order& order : effects.orders) {
      std::visit([&](auto& one) { Begin(std::move(one)); }, order);
    }
    if (!judged_.has_value()) return;
    const Judged judged = *std::exchange(judged_, std::nullopt);
    effects = engine_.EvaluationJudged(judged.round, judged.stop, SteadyClock().Now());
  }
}

// ---- records

void RunThreads::Write(Recorded recorded) {
  LogRecord(recorded.record);
  if (std::holds_alternative<log::NodeLost>(recorded.record)) ++nodes_lost_;
  if (std::holds_alternative<log::TurnedDown>(recorded.record)) ++parts_turned_down_;
  const auto* node = std::get_if<JournalNode>(&recorded.journal);
  const bool owner = node != nullptr && node->request.owner;
  if (durable_commits_ || owner) WriteJournal(std::move(recorded.journal));
  WriteRecord(std::move(recorded.record));
}

void RunThreads::WriteJournal(JournalData data) {
  if (auto* node = std::get_if<JournalNode>(&data)) writer_.Node(std::move(*node));
  if (auto* part = std::get_if<JournalPart>(&data)) writer_.Part(std::move(*part));
}

void RunThreads::WriteRecord(log::Record record) {
  writer_.Record(std::move(record), SteadyClock().Now() - started_, Elapsed());
}

void RunThreads::LogRecord(const log::Record& record) const {
  if (const auto* waiting = std::get_if<log::Waiting>(&record)) {
    log_.Info(absl::StrCat("waiting_for_clients round=", waiting->round.value,
                           " present=", waiting->present, " needed=", waiting->needed));
  } else if (const auto* gone = std::get_if<log::NodeLost>(&record)) {
    const std::string line =
        absl::StrCat("node_lost name=", gone->name, " reason=\"", gone->why, "\"");
    gone->why == "it left" ? log_.Info(line) : log_.Warning(line);
  } else if (const auto* declined = std::get_if<log::NodeDeclined>(&record)) {
    log_.Info(declined->why.empty() ? absl::StrCat("node_works_again name=", declined->name)
                                    : absl::StrCat("node_declines name=", declined->name,
                                                   " reason=\"", declined->why, "\""));
  } else if (const auto* extended = std::get_if<log::Extended>(&record)) {
    log_.Info(absl::StrCat("deadline_extended round=", extended->round.value,
                           " counted=", extended->counted, " needed=", extended->needed,
                           " missing=", extended->missing));
  } else if (const auto* cut = std::get_if<log::EvaluationGaveUp>(&record)) {
    log_.Warning(absl::StrCat("evaluation_without round=", cut->round.value,
                              cut->states ? " states" : "", " clients=", cut->given_up.size(),
                              " reason=\"", cut->why, "\""));
  } else if (const auto* states = std::get_if<log::StatesLost>(&record)) {
    const std::string then = states->all    ? AllBeginAnew(states->round)
                             : sums_states_ ? kStillSummed
                                            : "";
    log_.Warning(absl::StrCat("states_lost",
                              states->name.empty() ? "" : absl::StrCat(" worker=", states->name),
                              " clients=", states->clients.size() + states->counted.size(),
                              " reason=\"", states->why, "\"", then));
  } else if (const auto* lost = std::get_if<log::RoundLost>(&record);
             lost != nullptr && lost->dropped) {
    log_.Warning(absl::StrCat("round_dropped ", lost->why));
  }
}

// ---- orders

void RunThreads::Begin(PrepareBroadcast prepare) {
  const PhaseOrder& order = prepare.order;
  if (!first_lease_at_.has_value()) first_lease_at_ = round_started_ = SteadyClock().Now();
  PostSums([this, order] {
    absl::StatusOr<PhaseModels> models = keeper_.Open(order);
    if (models.ok()) {
      blobs_.Serve(models->newest.channels);
      blobs_.ServeOlder(models->older);
    }
    const absl::StatusOr<LargestSums> most = keeper_.MostSums();
    if (models.ok() && most.ok()) models->most_bytes_alone = most->alone;
    const LargestSums most_sums = most.value_or(LargestSums());
    loop_.Post([this, order, most_sums, models = std::move(models)]() mutable {
      most_sums_ = most_sums;
      Carry(
          engine_.BroadcastReady(order.round, order.phase, std::move(models), SteadyClock().Now()));
    });
  });
}

void RunThreads::Begin(AddPart order) {
  auto node = decoded_.extract(order.commit);
  PostSums([this, commit = order.commit, part = std::move(node.mapped())]() mutable {
    const absl::Status status = keeper_.Add(std::move(part.sum), part.first);
    loop_.Post(
        [this, commit, status] { Carry(engine_.PartAdded(commit, status, SteadyClock().Now())); });
  });
}

void RunThreads::Begin(AddPartAgain order) {
  PostSums([this, part = std::move(order.part)]() mutable {
    const absl::Status status = DecodeAndAdd(std::move(part));
    loop_.Post([this, status] { Carry(engine_.PartAdded(0, status, SteadyClock().Now())); });
  });
}

void RunThreads::Begin(ApplySum order) {
  PostSums([this, begins_anew = order.begins_anew,
            report = std::make_shared<const PhaseReport>(std::move(order.report))] {
    if (!report->dropped.empty()) keeper_.DropSum();
    Closed closed{.another_phase = keeper_.Apply(report->round, report->phase),
                  .report = report,
                  .headroom = keeper_.headroom(),
                  .rule = keeper_.metrics()};
    if (closed.round_done() && begins_anew) {
      if (absl::Status forgot = keeper_.ForgetStates(); !forgot.ok())
        closed.another_phase = std::move(forgot);
    }
    if (closed.round_done()) {
      if (EvaluationDue(options_, report->round)) {
        if (HasContributions(options_.run.evaluation, report->round)) ServeWithout(closed);
        closed.model = keeper_.EvaluatedBlob();
        closed.alone = models_ > 1 ? keeper_.ModelBlob() : *closed.model;
        blobs_.Serve({*closed.model});
        closed.row = MetricsRow(options_.run.task, *report, closed.headroom, closed.rule);
        // Model() has what is trained. Weight decay leaves frozen tensors alone.
        if (options_.run.evaluation.train && keeper_.model_names().empty())
          closed.row->AddPenalty(options_.run.local.weight_decay, keeper_.Model());
      }
      if (options_.stepwise) closed.shown = keeper_.ModelBlob();
      const uint32_t every = options_.config.checkpoint_every;
      // The last state is kept at the end of the run.
      const bool last =
          report->round.value == options_.run.rounds || report->round.value == options_.stop_after;
      if (every > 0 && report->round.value % every == 0 && !last) closed.state = keeper_.Save();
    }
    loop_.Post([this, closed = std::move(closed)]() mutable { OnClosed(std::move(closed)); });
  });
}

void RunThreads::ServeWithout(Closed& closed) {
  const std::vector<WithoutClient>& without = keeper_.without();  // of this round, or none
  const std::vector<UnlearnedModel> unlearned = keeper_.UnlearnedModels();
  closed.contributions = ContributionsOf(closed.report->round, without, unlearned);
  closed.without = ModelsBeside(without, unlearned);
  std::vector<fleet::Blob> models;
  for (const ModelWithout& one : closed.without) models.push_back(one.model);
  if (!models.empty()) blobs_.Serve(models);
}

void RunThreads::Begin(JudgeEvaluation order) {
  judged_ = {.round = order.round,
             .stop = order.sums.has_value() ? FinishRow(*order.sums) : RepeatRow(order.round)};
}

std::optional<std::string> RunThreads::FinishRow(const EvaluationSums& sums) {
  const training::ClassCounts counts = training::ClassCountsOf(options_.run);
  owed_row_->AddEvaluation(sums, counts, ConceptGroups(options_.run.transform, options_.run.seed),
                           options_.run.evaluation.metrics, DivisionsOf(options_.run, models_));
  const MetricsRow row = *std::exchange(owed_row_, std::nullopt);
  if (counts.whole_matrix()) writer_.Confusion(ConfusionText(sums, counts));
  if (std::string text = ClientEvaluationText(sums, options_.run.task, models_ > 1); !text.empty())
    writer_.ClientEvaluation(std::move(text));
  FinishContributions(sums);
  WriteRow([row] { return row.Text(); });
  return ObserveForStop(sums.round, row);
}

void RunThreads::FinishContributions(const EvaluationSums& sums) {
  const std::string line = std::exchange(owed_contributions_, "");
  if (line.empty()) return;
  writer_.Contributions(WithEvaluation(line, sums, options_.run.task));
  PostSums([this] { keeper_.ForgetWithout(); });
}

void RunThreads::RepeatContributions(Round round) {
  if (std::exchange(owed_contributions_, "").empty()) return;
  writer_.Contributions(past_contributions_.at(round));
  PostSums([this] { keeper_.ForgetWithout(); });
}

std::optional<std::string> RunThreads::RepeatRow(Round round) {
  owed_row_.reset();
  RepeatContributions(round);
  const std::string text = past_rows_.at(round);
  WriteRow([text] { return text; });
  const std::optional<MetricsRow> row = MetricsRow::Parse(options_.run.task, text);
  return row.has_value() ? ObserveForStop(round, *row) : std::nullopt;
}

absl::Status RunThreads::DecodeAndAdd(fleet::Part part) {
  const auto place = past_sums_.find(part.sums.digest);
  if (place == past_sums_.end()) {
    return absl::DataLossError(absl::StrCat("the journal lacks sums of round ", part.round.value));
  }
  MACAW_ASSIGN_OR_RETURN(part.sums, ReadBlob(place->second, part.sums.digest));
  MACAW_ASSIGN_OR_RETURN(aggregation::ExactSum sum, keeper_.Decode(part));
  return keeper_.Add(std::move(sum), part.included.front().attempt.client);
}

KeptModel RunThreads::Kept(fleet::Blob model) const {
  return {std::move(model), layout_, split_, absl::StrJoin(options_.run.model.adapters, "\n")};
}

std::optional<std::string> RunThreads::ObserveForStop(Round round, const MetricsRow& row) {
  const std::optional<fleet::Blob> model = std::exchange(observed_model_, std::nullopt);
  // A key that only tells of clients must not change when the run ends.
  if (!RegularEvaluationDue(options_.run, round, options_.stop_after)) return std::nullopt;
  std::optional<std::string> spent = early_stopping_.Spent(round.value);
  const auto value =
      options_.config.stop.active() ? row.Get(options_.config.stop.metric) : std::nullopt;
  if (!value.has_value()) return spent;
  std::optional<std::string> stop = early_stopping_.Observe(round.value, *value);
  const bool best = early_stopping_.best_round() == round.value;
  if (best && options_.config.stop.patience > 0 && model.has_value()) {
    const uint32_t every = options_.run.evaluation.every;
    writer_.Best(round, Kept(*model), /*off_grid=*/every == 0 || round.value % every != 0);
  }
  return stop.has_value() ? stop : spent;
}

void RunThreads::OnClosed(Closed closed) {
  if (suspended_) return;
  const PhaseReport& report = *closed.report;
  const TimePoint now = SteadyClock().Now();
  writer_.Phase(closed.report, started_, now);
  if (closed.another_phase.ok() && !engine_.redoing()) {
    // Written before the checkpoint, because the log must have every round of a checkpoint.
    WriteRecord(log::Closed{.round = report.round,
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
    WarnOfCoarseSums(closed);
    early_stopping_.Spend([&](const char* column) { return RoundValue(report, column); });
    if (options_.config.client_records) {
      writer_.Clients(report.round, report.records, options_.run.task);
    }
    if (closed.shown.has_value())  // before the round's row, whose reader may ask for the model
      writer_.RoundModel(report.round, Kept(*std::move(closed.shown)));
    Checkpoint checkpoint;
    if (closed.state.has_value()) {
      checkpoint = CheckpointOf(report.round, StateVersions::Staged::kIncluded);
      checkpoint.state = *std::move(closed.state);
      checkpoint.clock = report.clock;
      if (closed.row.has_value()) checkpoint.owed_row = closed.row->Text();
      checkpoint.owed_contributions = closed.contributions;
    }
    if (closed.row.has_value()) {
      owed_row_ = *std::move(closed.row);
      owed_contributions_ = std::move(closed.contributions);
      if (options_.config.stop.active()) observed_model_ = closed.alone;
    } else {
      // Its statistics are computed on the writer's thread, so the next round need not wait.
      WriteRow([task = options_.run.task, report = closed.report, headroom = closed.headroom,
                rule = closed.rule] { return MetricsRow(task, *report, headroom, rule).Text(); });
    }
    // A disk that is slower than the rounds gets fewer of them, each of which holds whole models.
    if (checkpoint.round.value > 0 && checkpoints_waiting_ < kMostCheckpointsWaiting) {
      ++checkpoints_waiting_;
      writer_.Keep(std::move(checkpoint), [this](Round oldest) {
        loop_.Post([this, oldest] {
          --checkpoints_waiting_;
          engine_.CheckpointsFrom(oldest);
        });
      });
    }
  }
  Carry(engine_.Applied(std::move(closed.another_phase), std::move(closed.model),
                        SteadyClock().Now(), std::move(closed.without)));
}

void RunThreads::WarnOfCoarseSums(const Closed& closed) {
  if (told_of_coarse_sums_) return;
  std::string text = CoarseSumsText(closed.report->round, closed.headroom, bounded_);
  if (text.empty()) return;
  told_of_coarse_sums_ = true;
  log_.Warning(absl::StrCat("coarse_sums ", text));
  if (!options_.on_warning) return;
  writer_.After(
      RunWriter::Safe::kFromThisProcess,
      [tell = options_.on_warning, text = std::move(text)](const absl::Status&) { tell(text); });
}

void RunThreads::WriteRow(std::function<std::string()> text) {
  has_rows_ = true;
  writer_.Row(std::move(text), [this](const std::string& row) {
    latest_row_.Set(row);
    if (options_.on_row) options_.on_row(row);
  });
}

Checkpoint RunThreads::CheckpointOf(Round round, StateVersions::Staged staged) {
  return {.round = round,
          .fingerprint = Fingerprint(options_.run),
          .data_digest = DataDigest(),
          .profiles = engine_.profiles(),
          .seconds = Elapsed(),
          .clock = engine_.clock(),
          .run_id = run_id_,
          .base = split_ != nullptr ? split_->base().digest : Digest(),
          .versions = engine_.SnapshotVersions(staged),
          .begins_anew = staged == StateVersions::Staged::kLeftOut && engine_.begins_anew(),
          .feedback = engine_.SnapshotFeedback(staged)};
}

void RunThreads::LogLeftOut(const fleet::HeartbeatRequest& request, LeftOutLines& lines) const {
  const Node* const node = engine_.nodes().Find(request.session);
  if (node == nullptr || request.left_out.empty()) return;
  for (const std::string& line :
       lines.Of(request.left_out, *node, engine_.roster(), SteadyClock().Now()))
    log_.Warning(line);
}

}  // namespace macaw::server
