#include "server/engine/part_checks.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/status.h"
#include "training/api/class_counts.h"
#include "training/api/metrics.h"
#include "training/api/most_work.h"
#include "training/api/row_metrics.h"

namespace macaw::server {
namespace {

// The rows that a task asks for. Of a client's own test and validation rows there are as many as
// its node said before the run.
uint64_t RowsOf(const fleet::EvaluationTask& task, const Roster& roster) {
  if (!fleet::TakesAllRows(task.kind)) return task.end - task.begin;
  return task.kind == fleet::EvaluationKind::kClientValidation
             ? roster.ValidationRowsOf(task.client)
             : roster.TestRowsOf(task.client);
}

// Whether none of these rows may be evaluated: a client without training rows has none to be tuned
// on, and its rows are left out of what is said of tuned models.
bool MayBeNone(const fleet::EvaluationTask& task, const Roster& roster) {
  return task.kind == fleet::EvaluationKind::kClientTuned && roster.rows()[task.client.value] == 0;
}

// How many tokens one row can hold.
double PositionsOf(const RunPlan& run) {
  double positions = 1;
  for (const int64_t size : run.model.input_shape) positions *= static_cast<double>(size);
  return positions;
}

absl::Status CheckMetrics(TaskKind task, const fleet::ClientRecord& record) {
  const training::MetricSchema& schema = training::SchemaFor(task);
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("client ", record.attempt.client.value, " reports ", why));
  };
  constexpr size_t kAlwaysSaid = 2;  // rows and losses; of the rest a program may know nothing: NaN
  for (const std::vector<double>* sums : {&record.sums, &record.personal_sums}) {
    if (sums == &record.personal_sums && sums->empty()) continue;  // no personal model
    if (sums->size() != schema.sums.size())
      return refuse(absl::StrCat(sums->size(), " metric sums, the task has ", schema.sums.size()));
    std::vector<double> said = *sums;
    std::replace_if(
        said.begin() + kAlwaysSaid, said.end(), [](double sum) { return std::isnan(sum); }, 0);
    if (!training::CountsFit(schema, said) || !std::ranges::all_of(said, training::IsWithinLimit))
      return refuse("metrics that no examples can give");
  }
  return absl::OkStatus();
}

// A result is bounded by the work that was handed out.
bool IsMoreThanLeased(const RunPlan& run, const fleet::ClientRecord& record, const Seat& seat) {
  const training::MostWork most = training::MostWorkOf(
      run, {.rows = record.examples, .tokens = seat.tokens, .steps = seat.entry.steps});
  const double personal = record.personal_sums.empty() ? 0 : record.personal_sums[0];
  return record.sums[0] > most.rows || personal > most.rows ||
         static_cast<double>(record.steps) > most.steps;
}

}  // namespace

absl::Status CheckPart(const RunPlan& run, bool keeps_states, const OpenPhase& phase,
                       const fleet::Part& part) {
  for (const fleet::ClientRecord& record : part.included) {
    const uint64_t client = record.attempt.client.value;
    const Seat* seat = phase.Find(record.attempt.client);
    if (seat == nullptr || record.multiplicity != seat->entry.multiplicity ||
        record.weight != seat->weight) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", client, " has another weight than it was leased with"));
    }
    if (record.examples != seat->entry.load) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", client, " reports another number of examples than it has"));
    }
    if (record.has_state && !keeps_states) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", client, " reports a state, but the run's algorithm keeps none"));
    }
    MACAW_RETURN_IF_ERROR(CheckMetrics(run.task, record));
    if (IsMoreThanLeased(run, record, *seat)) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", client, " reports more work than it was leased"));
    }
    if (record.bytes_up > phase.most_bytes_alone()) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", client, " reports ", record.bytes_up,
                       " bytes of its update, and the largest in this round has ",
                       phase.most_bytes_alone(), " (bytes_up)"));
    }
  }
  for (const fleet::LeftOut& left : part.left_out) {
    if (left.reason > fleet::LeftOutReason::kDeclined) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", left.attempt.client.value,
                       " is left out for a reason that only the server gives"));
    }
    if (left.reason == fleet::LeftOutReason::kState && !keeps_states) {
      return absl::InvalidArgumentError(
          absl::StrCat("client ", left.attempt.client.value,
                       " is left out for its state, but the run's algorithm keeps none"));
    }
  }
  if (part.broadcast != phase.broadcast().name)
    return absl::InvalidArgumentError("it was trained from another broadcast");
  return absl::OkStatus();
}

absl::Status CheckEvaluation(const RunPlan& run, const Roster& roster, bool keeps_states,
                             const fleet::EvaluationTask& task,
                             const fleet::EvaluationResult& result, uint32_t models) {
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("an evaluation after round ", result.round.value, " ", what));
  };
  const bool reads_states = task.kind == fleet::EvaluationKind::kStateDigest ||
                            (fleet::AtClientsPoint(task.kind) && keeps_states);
  if (!result.failure.empty()) {
    if (reads_states) return absl::OkStatus();
    return refuse("that reads no client state reports that one cannot be read");
  }
  if (task.kind == fleet::EvaluationKind::kStateDigest) {
    return result.digest.IsZero() ? absl::InvalidArgumentError("a digest of states is missing")
                                  : absl::OkStatus();
  }
  const training::MetricSchema& schema = training::SchemaFor(run.task);
  if (result.choice >= models) return refuse("names a model that the rule does not have");
  const bool counted =
      result.sums.size() == training::EvaluationSumsOf(run) &&
      training::CountsFit(schema, std::span(result.sums).first(schema.sums.size()));
  const auto rows = static_cast<double>(RowsOf(task, roster));
  // The server knows how many rows there are, and not how many tokens are in use in them, nor how
  // many rows are of the class that a backdoor aims at.
  const bool known =
      run.task != TaskKind::kNextToken && task.kind != fleet::EvaluationKind::kCentralBackdoor;
  const double most = run.task != TaskKind::kNextToken ? rows : rows * PositionsOf(run);
  const bool none = counted && result.sums[0] == 0 && MayBeNone(task, roster);
  if (!counted || !(none || (known ? result.sums[0] == most : result.sums[0] <= most)))
    return refuse("does not report the rows it was asked for");
  // The sums over clients leave a client out for its loss only where it has rows.
  const bool empty = result.sums[0] == 0;
  if (empty && !std::ranges::all_of(result.sums, [](double sum) { return sum == 0; }))
    return refuse("reports losses of no rows");
  training::SparseCounts classes{.at = result.counted, .count = {}};
  classes.count.assign(result.counts.begin(), result.counts.end());
  if (training::ClassCountsOf(run).Fit(classes, result.sums[0])) return absl::OkStatus();
  return refuse("reports counts of classes that its rows cannot give");
}

std::vector<Attempt> AttemptsOf(const fleet::Part& part) {
  std::vector<Attempt> attempts;
  attempts.reserve(part.included.size() + part.left_out.size());
  for (const fleet::ClientRecord& record : part.included) attempts.push_back(record.attempt);
  for (const fleet::LeftOut& left : part.left_out) attempts.push_back(left.attempt);
  return attempts;
}

}  // namespace macaw::server
