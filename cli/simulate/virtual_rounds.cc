#include "cli/simulate/virtual_rounds.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config/drawable.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "core/files.h"
#include "core/status.h"
#include "server/engine/timed_round.h"

namespace macaw::cli {
namespace {

using Row = nlohmann::ordered_json;

// A last line that a crash cut off is skipped.
absl::StatusOr<std::vector<Row>> RoundsIn(const std::string& file) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  std::vector<Row> rows;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    Row row = Row::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object() && row.value("round", 0U) > 0) rows.push_back(std::move(row));
  }
  return rows;
}

absl::Status CheckSeconds(const Row& row, double planned) {
  const double seconds = row.value("virtual_seconds", 0.0);
  if (std::abs(seconds - planned) <= 1e-9 * std::max(seconds, 1.0)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "round ", row.value("round", 0U), " took ", seconds, " virtual seconds, but ", planned,
      " by config.toml: the data or the tables of [devices] are others than those of the run, or "
      "clients had been given up"));
}

// The turns that go on after `from`.
void KeepAfter(double from, std::vector<VirtualTrace::Turn>& turns) {
  std::erase_if(turns, [from](const VirtualTrace::Turn& turn) { return turn.ended <= from; });
}

}  // namespace

virtual_time::RoundFacts FactsOf(const Row& row) {
  const auto counted = row.value("clients", uint64_t{0});
  return {.counted = counted,
          .drawn = counted + row.value("left_out", uint64_t{0}),
          .bytes_up = row.value("bytes_up", uint64_t{0}),
          .bytes_down = row.value("bytes_down", uint64_t{0})};
}

absl::StatusOr<VirtualTrace> TraceOf(const TurnPlan& plan, const std::vector<Row>& rows,
                                     Round first, Round last, uint64_t most_turns) {
  VirtualTrace trace;
  virtual_time::ClockState clock = plan.first();
  for (const Row& row : rows) {
    const Round round(row.value("round", 0U));
    if (round > last || trace.turns.size() > most_turns) break;
    const double began = clock.now;
    if (round <= first) KeepAfter(began, trace.turns);
    PlannedRound planned = plan.At(round, clock);
    MACAW_RETURN_IF_ERROR(CheckSeconds(row, planned.time->seconds));
    const double ended = planned.time->end.now;
    for (const server::BegunTurn& one : planned.begun) {
      const double arrives = one.began + one.time.whole();
      trace.turns.push_back({.client = one.client.value,
                             .base = one.base.value,
                             .began = one.began,
                             .download = one.time.download,
                             .work = one.time.work,
                             .upload = one.time.upload,
                             .ended = plan.asynchronous() ? arrives : std::min(arrives, ended)});
    }
    if (round >= first) {
      trace.steps.push_back({.round = round.value,
                             .began = began,
                             .ended = ended,
                             .clients = row.value("clients", uint64_t{0}),
                             .late = planned.time->late});
    }
    clock = After(std::move(planned.time->end), FactsOf(row));
  }
  if (!trace.steps.empty()) return trace;
  return absl::NotFoundError(absl::StrCat("metrics.jsonl has no round from ", first.value, " to ",
                                          last.value, "; it has ", rows.size(), " rounds"));
}

absl::StatusOr<VirtualTrace> TraceOfRun(const std::string& folder, Round first, Round last,
                                        uint64_t most_turns) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<Row> rows, RoundsIn(folder + "/metrics.jsonl"));
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(folder + "/config.toml"));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(Config config, ReadConfig(document, {}, catalogue, Idle::kLeaveOut));
  if (!config.run.devices.on()) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " has no virtual time: it ran without [devices]"));
  }
  if (LearnsFromRounds(config.run.cohort)) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, " drew its clients by cohort.sampling = \"", config.run.cohort.sampling,
        "\", which follows their losses, and the trace is made from the configuration alone: "
        "`macaw log` has the cohorts"));
  }
  MACAW_RETURN_IF_ERROR(CheckNamesData(config));
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  MACAW_RETURN_IF_ERROR(Resolve(config, *dataset, catalogue));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  MACAW_ASSIGN_OR_RETURN(ClientDevices devices, OpenClientDevices(config, *dataset));
  const bool owners = config.node.workers.owners > 0;
  std::vector<uint32_t> client_rows =
      DrawableRows(config.run, *dataset, owners ? MatchedBy::kNumber : MatchedBy::kName);
  MACAW_ASSIGN_OR_RETURN(RowsOfTurn passes,
                         PassesOf(config.run, catalogue.algorithms(), spec.layout));
  MACAW_ASSIGN_OR_RETURN(
      const TurnPlan plan,
      TurnPlan::Make(config.run, std::move(client_rows), std::move(devices),
                     server::FirstTraffic(config.run, *spec.layout), std::move(passes)));
  return TraceOf(plan, rows, first, last, most_turns);
}

}  // namespace macaw::cli
