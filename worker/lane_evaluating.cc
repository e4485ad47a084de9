// The half of a lane that evaluates models, and digests client states.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "plan/local_steps.h"
#include "state/range_digest.h"
#include "training/api/losses.h"
#include "training/api/metrics.h"
#include "training/api/row_metrics.h"
#include "worker/lane.h"
#include "worker/lasting_fault.h"

namespace macaw::worker {
namespace {

// Rows per forward pass. It influences the bits of the result, so it is a constant and not an
// option.
constexpr uint32_t kEvaluationBatch = 200;
// No algorithm has so many phases, so fine-tuning has random streams of its own.
constexpr Phase kFineTunePhase{255};

// Whether all of these are 0. Their bits are looked at together, and none is -0.
bool AllZero(std::span<const double> values) {
  uint64_t bits = 0;
  for (const double value : values) bits |= std::bit_cast<uint64_t>(value);
  return bits == 0;
}

// Moves what lies behind the task's sums to the counts, without zeros: most of them are, up to
// 6 MB of them. So they are passed over by the block, and the result keeps no memory of theirs.
void MoveCounts(size_t sums, fleet::EvaluationResult& result) {
  if (result.sums.size() <= sums) return;
  constexpr size_t kBlock = 64;
  const training::MetricSums all = std::exchange(result.sums, {});
  result.sums.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(sums));
  const std::span<const double> counts = std::span(all).subspan(sums);
  for (size_t begin = 0; begin < counts.size(); begin += kBlock) {
    const size_t end = std::min(counts.size(), begin + kBlock);
    if (AllZero(counts.subspan(begin, end - begin))) continue;
    for (size_t i = begin; i < end; ++i) {
      if (counts[i] == 0) continue;
      result.counted.push_back(static_cast<uint32_t>(i));
      result.counts.push_back(static_cast<uint32_t>(counts[i]));
    }
  }
}

}  // namespace

absl::StatusOr<ConstVectorView> Lane::PointOf(const EvaluationContext& evaluation,
                                              const ConstVectorView& model,
                                              const fleet::EvaluationTask& task,
                                              const state::ClientState& state) {
  const uint32_t examples = dataset_->Examples(ClientId(task.place), data::Split::kTrain);
  const algorithms::ClientContext context{
      .round = evaluation.round,
      .client = task.client,
      .examples = examples,
      .local = evaluation.local,
      .broadcast = std::span(&model, 1),  // an evaluation sends nothing else
      .state = state.items,
      .first_turn = task.state_version.counter == 0,
      .seed = context_->run.seed,
      .schema = &context_->schema};
  MACAW_ASSIGN_OR_RETURN(const training::Point point,
                         context_->algorithm->EvaluationPoint(context, CleanWorkspace(0)));
  const auto* view = std::get_if<ConstVectorView>(&point);
  if (view == nullptr) {
    return absl::InternalError(absl::StrCat(
        context_->run.algorithm.name, " names the end of a stage to evaluate; there is none"));
  }
  return *view;
}

absl::StatusOr<uint32_t> Lane::ChoiceOf(const EvaluationContext& evaluation,
                                        const fleet::EvaluationTask& task) {
  if (evaluation.models.size() < 2) return 0;
  training::ClientTask client{
      .seed = context_->run.seed, .round = evaluation.round, .client = task.client};
  MACAW_ASSIGN_OR_RETURN(
      client.train, LoadRows(*context_, *dataset_, SubjectOf(task), data::Split::kTrain, work_));
  if (client.train.size() == 0) return 0;
  training::LocalPlan plan;
  for (const ConstVectorView model : evaluation.models) {
    training::Stage& stage = plan.stages.emplace_back();
    stage.kind = training::StageKind::kLoss;
    stage.start = model;
    stage.local = evaluation.local;
  }
  training::TurnOutcome outcomes = trainer_->Run(plan, client);
  if (!outcomes.ok())
    return OfTrainer(
        Annotate(outcomes.status(), "choosing among the rule's models before an evaluation"));
  return static_cast<uint32_t>(training::LeastLoss(*outcomes));
}

absl::StatusOr<ConstVectorView> Lane::FineTuned(const EvaluationContext& evaluation,
                                                const fleet::EvaluationTask& task,
                                                ConstVectorView start) {
  training::ClientTask client{.seed = context_->run.seed,
                              .round = evaluation.round,
                              .phase = kFineTunePhase,
                              .client = task.client};
  MACAW_ASSIGN_OR_RETURN(client.train,
                         LoadRowsToTuneOn(*context_, *dataset_, SubjectOf(task), work_));
  if (client.train.size() == 0) return ConstVectorView();
  training::LocalPlan plan;
  training::Stage& stage = plan.stages.emplace_back();
  stage.start = start;
  stage.local = evaluation.local;
  const FineTune& fine_tune = context_->run.evaluation.fine_tune;
  stage.local.steps = fine_tune.steps;
  // Not at the round's rate: tuning would do less in each round, and nothing in the last ones.
  stage.local.lr = fine_tune.lr > 0 ? fine_tune.lr : context_->run.local.lr;
  // A client with less than a batch is tuned, too.
  if (client.train.size() < LeastRows(stage.local)) stage.local.drop_last = false;
  training::TurnOutcome outcomes = trainer_->Run(plan, client);
  if (!outcomes.ok())
    return OfTrainer(
        Annotate(outcomes.status(), "fine-tuning before an evaluation (evaluation.fine_tune)"));
  const training::EndVector& end = outcomes->back().end;
  MACAW_RETURN_IF_ERROR(OfTrainer(end.Fetch()));
  return end.view();
}

absl::StatusOr<fleet::EvaluationResult> Lane::DigestStates(
    const EvaluationContext& evaluation, const fleet::EvaluationTask& task) const {
  fleet::EvaluationResult result{.task = task, .round = evaluation.round};
  result.task.states.clear();  // the fence names them
  if (context_->states == nullptr)
    return absl::InternalError("asked for client states that the algorithm does not keep");
  const absl::StatusOr<Digest> digest =
      state::DigestOfRange(context_->states->store(), task.states, work_);
  if (absl::IsNotFound(digest.status()) || absl::IsDataLoss(digest.status())) {
    result.failure = std::string(digest.status().message());
    return result;
  }
  MACAW_ASSIGN_OR_RETURN(result.digest, digest);
  return result;
}

absl::StatusOr<fleet::EvaluationResult> Lane::Evaluate(const EvaluationContext& evaluation,
                                                       const fleet::EvaluationTask& task) {
  absl::StatusOr<fleet::EvaluationResult> result = TryToEvaluate(evaluation, task);
  if (result.ok() || !WouldComeAgain(result.status())) return result;
  return LastingFault(result.status().message());
}

absl::StatusOr<fleet::EvaluationResult> Lane::TryToEvaluate(const EvaluationContext& evaluation,
                                                            const fleet::EvaluationTask& task) {
  if (task.kind == fleet::EvaluationKind::kStateDigest) return DigestStates(evaluation, task);
  fleet::EvaluationResult result{.task = task, .round = evaluation.round};
  state::ClientState state;  // outlives the evaluation
  const HeldModel received = Hold(evaluation.model, evaluation.part);
  ConstVectorView model = received.view;
  data::Rows rows;
  uint64_t begin = task.begin, end = task.end;
  switch (task.kind) {
    case fleet::EvaluationKind::kCentralTest:
    case fleet::EvaluationKind::kCentralValidation: {
      const bool tests = task.kind == fleet::EvaluationKind::kCentralTest;
      rows = tests ? dataset_->CentralTest() : dataset_->CentralValidation();
      MACAW_ASSIGN_OR_RETURN(rows, OfTheCentralRows(*context_, std::move(rows), begin, end));
      end -= std::exchange(begin, 0);
      break;
    }
    case fleet::EvaluationKind::kCentralBackdoor: {
      MACAW_ASSIGN_OR_RETURN(rows,
                             StampedCentralRows(*context_, dataset_->CentralTest(), begin, end));
      begin = 0;
      end = rows.size();
      break;
    }
    case fleet::EvaluationKind::kClientTest:
    case fleet::EvaluationKind::kClientTestGlobal:
    case fleet::EvaluationKind::kClientTuned:
    case fleet::EvaluationKind::kClientValidation: {
      const data::Split split = task.kind == fleet::EvaluationKind::kClientValidation
                                    ? data::Split::kValidation
                                    : data::Split::kTest;
      MACAW_ASSIGN_OR_RETURN(rows, LoadRows(*context_, *dataset_, SubjectOf(task), split, work_));
      begin = 0;
      end = rows.size();
      if (!fleet::AtClientsPoint(task.kind)) break;
      absl::StatusOr<state::ClientState> read = ReadState({task.client, task.state_version});
      if (absl::IsDataLoss(read.status())) {
        result.failure = std::string(read.status().message());
        return result;
      }
      MACAW_ASSIGN_OR_RETURN(state, std::move(read));
      MACAW_ASSIGN_OR_RETURN(model, PointOf(evaluation, received.view, task, state));
      MACAW_ASSIGN_OR_RETURN(result.choice, ChoiceOf(evaluation, task));
      if (result.choice > 0) model = evaluation.models[result.choice];
      if (task.kind == fleet::EvaluationKind::kClientTuned && rows.size() > 0) {
        MACAW_ASSIGN_OR_RETURN(model, FineTuned(evaluation, task, model));
        if (model.empty()) end = begin;  // no rows to tune on: not evaluated
      }
      break;
    }
    case fleet::EvaluationKind::kClientTrain: {
      MACAW_ASSIGN_OR_RETURN(
          rows, LoadRows(*context_, *dataset_, SubjectOf(task), data::Split::kTrain, work_));
      MACAW_ASSIGN_OR_RETURN(result.choice, ChoiceOf(evaluation, task));
      if (result.choice > 0) model = evaluation.models[result.choice];
      break;
    }
    case fleet::EvaluationKind::kStateDigest:
      break;  // above
  }
  if (end > rows.size() || begin > end) {
    return absl::OutOfRangeError(
        absl::StrCat("asked to evaluate rows ", begin, " to ", end, " of ", rows.size()));
  }
  if (begin == end) {
    result.sums.assign(training::EvaluationSumsOf(context_->run), 0.0);
    return result;
  }
  auto sums = trainer_->Evaluate(model, rows, begin, end, kEvaluationBatch);
  if (!sums.ok()) return OfTrainer(sums.status());
  result.sums = *std::move(sums);
  MoveCounts(training::SchemaFor(context_->run.task).sums.size(), result);
  training::AddLabelSums(context_->run, rows, begin, end, result.sums);
  training::MakeInfiniteBeyondLimit(result.sums);
  return result;
}

}  // namespace macaw::worker
