#include "worker/dry_run.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/local_work.h"
#include "core/status.h"
#include "training/api/round_local.h"
#include "training/api/trainer.h"
#include "training/backends.h"
#include "worker/lane.h"
#include "worker/lasting_fault.h"
#include "worker/load_client.h"

namespace macaw::worker {
namespace {

constexpr uint64_t kRows = 2;  // batch norm needs more than one value per channel

void KeepFirst(data::Rows& rows) {
  if (rows.index.empty()) {
    rows.block.count = std::min(rows.block.count, kRows);
  } else {
    rows.index = rows.index.first(std::min<size_t>(rows.index.size(), kRows));
  }
}

std::optional<ClientId> FirstWithRows(const data::Dataset& dataset) {
  for (uint64_t client = 0; client < dataset.info().clients; ++client) {
    if (dataset.Examples(ClientId(client), data::Split::kTrain) > 0) return ClientId(client);
  }
  return std::nullopt;
}

std::vector<LayoutPtr> LayoutsOf(const std::vector<algorithms::NamedLayout>& items) {
  std::vector<LayoutPtr> layouts;
  for (const algorithms::NamedLayout& item : items) layouts.push_back(item.layout);
  return layouts;
}

std::vector<ConstVectorView> ViewsOf(const std::vector<FlatVector>& vectors) {
  std::vector<ConstVectorView> views;
  for (const FlatVector& vector : vectors) views.push_back(vector.view());
  return views;
}

// The first and the last line of a message. The TorchScript interpreter writes many lines; these
// two say what failed and why.
std::string InOneLine(absl::string_view message) {
  const std::vector<absl::string_view> lines =
      absl::StrSplit(message, '\n', absl::SkipWhitespace());
  if (lines.size() < 2) return std::string(message);
  return absl::StrCat(absl::StripAsciiWhitespace(lines.front()), " … ",
                      absl::StripAsciiWhitespace(lines.back()));
}

// by_rule: becomes true where it is the rule that fails, whose sentence says what is to be changed.
absl::Status Try(const RunContext& context, const data::Dataset& dataset, ClientId client,
                 bool& by_rule) {
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<training::LocalTrainer> trainer,
                         MakeTrainerFor(context, dataset, /*work=*/nullptr));
  // The client's number in the run is not known yet. Its place among this node's clients is enough.
  MACAW_ASSIGN_OR_RETURN(training::ClientTask task,
                         LoadClient(context, dataset, {.client = client, .place = client}, Round(1),
                                    Phase(0), /*work=*/nullptr));
  for (data::Rows* rows : {&task.train, &task.validation, &task.test}) KeepFirst(*rows);
  task.trial = true;
  const std::vector<FlatVector> down = Zeros(algorithms::DownLayouts(context.schema, Phase(0))),
                                state = Zeros(LayoutsOf(context.schema.state));
  const std::vector<ConstVectorView> broadcast =
      algorithms::ParallelToDown(context.schema, Phase(0), ViewsOf(down));
  const std::vector<ConstVectorView> kept = ViewsOf(state);
  algorithms::ClientContext turn{.round = Round(1),
                                 .client = client,
                                 .examples = static_cast<uint32_t>(task.train.size()),
                                 .local = training::RoundLocal(context.run, Round(1)),
                                 .broadcast = broadcast,
                                 .state = kept,
                                 .first_turn = true,
                                 .seed = context.run.seed,
                                 .schema = &context.schema};
  turn.local.steps = 1;
  turn.local.batch_size = kRows;
  turn.local.drop_last = false;
  {
    algorithms::Workspace workspace;  // the space of its vectors is free before the evaluation
    by_rule = true;
    const auto run = [&](const training::LocalPlan& plan) {
      auto outcomes = trainer->Run(plan, task);
      by_rule = outcomes.ok();
      return outcomes;
    };
    MACAW_ASSIGN_OR_RETURN(const algorithms::LocalWork work,
                           algorithms::CarryOut(*context.algorithm, turn, workspace, run));
    MACAW_ASSIGN_OR_RETURN(const algorithms::ClientResult result,
                           context.algorithm->Conclude(turn, work.outcomes, workspace));
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> next_state,
                           algorithms::StateViews(context.schema, kept, result));
    const auto ends = next_state.empty() ? algorithms::Ends::kMayGo : algorithms::Ends::kStay;
    MACAW_RETURN_IF_ERROR(
        algorithms::UpViews(context.schema, turn.phase, result, workspace, ends).status());
  }
  by_rule = false;
  absl::Status evaluated =
      trainer->Evaluate(broadcast[0], task.train, 0, task.train.size(), kRows).status();
  const bool is_script = context.spec.script != nullptr;
  if (evaluated.ok() && is_script && context.backend.name != training::kProcessBackend) {
    // The module's code may name the number of rows, above all if the module was traced.
    const std::vector<uint32_t> more(kRows + 1, static_cast<uint32_t>(task.train.at(0)));
    data::Rows rows = task.train;
    rows.index = more;
    evaluated = trainer->Evaluate(broadcast[0], rows, 0, rows.size(), kRows + 1).status();
  }
  const EvaluationConfig& evaluation = context.run.evaluation;
  const bool needed = evaluation.clients || evaluation.validation || evaluation.train ||
                      dataset.info().test_examples > 0 || dataset.info().val_examples > 0;
  return absl::IsUnimplemented(evaluated) && !needed ? absl::OkStatus() : evaluated;
}

}  // namespace

absl::Status TryOneBatch(const RunContext& context, const data::Dataset& dataset) {
  const std::optional<ClientId> client = FirstWithRows(dataset);
  if (!client.has_value()) return absl::OkStatus();
  bool by_rule = false;
  const absl::Status status = Try(context, dataset, *client, by_rule);
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  if (IsLostDevice(status) || absl::IsUnavailable(status)) return LostDevice(status.message());
  return absl::InvalidArgumentError(absl::StrCat(
      "a batch of client ", client->value, " was tried before the run and cannot be trained: ",
      InOneLine(status.message()), by_rule ? "" : "; look at [model], run.task and [algorithm]"));
}

}  // namespace macaw::worker
