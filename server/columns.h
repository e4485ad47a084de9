#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "algorithms/around/registry.h"
#include "plan/run_plan.h"
#include "plan/task.h"
#include "server/client_groups.h"
#include "server/engine/evaluation_sums.h"
#include "server/engine/phase.h"

// The definitions of the columns of metrics.jsonl. A new one is an entry here, in statistics.h
// (over clients), in training/api/metrics.cc (of a task) or in training/api/class_counts.cc (of
// classes). The table in docs/guides/runs.md and `macaw keys --json` are written from them.
namespace macaw::server {

// A number of a round that was closed.
struct RoundColumn {
  const char* name;
  const char* help;
  double (*of)(const PhaseReport& report);
  bool (*has)(const PhaseReport& report) = [](const PhaseReport&) { return true; };
};
inline constexpr RoundColumn kRoundColumns[] = {
    {"round", "the round", [](const PhaseReport& r) { return static_cast<double>(r.round.value); }},
    {"clients", "clients that counted",
     [](const PhaseReport& r) { return static_cast<double>(r.records.size()); }},
    {"left_out",
     "clients that did not, in all phases; `events.jsonl` says why, such as losses that are not "
     "finite or beyond 10⁵⁰ in sum",
     [](const PhaseReport& r) {
       return static_cast<double>(r.left_out_before.size() + r.left_out.size());
     }},
    {"examples", "training rows of the counted clients",
     [](const PhaseReport& r) {
       double examples = 0;
       for (const fleet::ClientRecord& record : r.records) examples += record.examples;
       return examples;
     }},
    {"steps", "local steps of the counted clients",
     [](const PhaseReport& r) {
       double steps = 0;
       for (const fleet::ClientRecord& record : r.records)
         steps += static_cast<double>(record.steps);
       return steps;
     }},
    {"bytes_up", "bytes of the counted clients' updates, each sent on its own, in all phases",
     [](const PhaseReport& r) { return static_cast<double>(r.bytes_up); }},
    {"bytes_down",
     "bytes that the drawn clients fetch to train, each vector once; frozen tensors, which a device "
     "fetches once in a run, are not in it",
     [](const PhaseReport& r) { return static_cast<double>(r.bytes_down); }},
    {"virtual_seconds", "seconds that the round takes on the devices of `[devices]`",
     [](const PhaseReport& r) { return r.virtual_time->seconds; },
     [](const PhaseReport& r) { return r.virtual_time.has_value(); }},
    {"late",
     "of a run with `[devices]`: places of the round that stayed empty at `round.deadline`, or "
     "arrivals beyond `round.max_staleness`",
     [](const PhaseReport& r) { return static_cast<double>(r.virtual_time->late); },
     [](const PhaseReport& r) { return r.virtual_time.has_value(); }},
    {"staleness",
     "rounds by which the models of the round's clients were older than the newest, on average "
     "(`round.mode`); in a simulation those of `left_out` are in it, too",
     [](const PhaseReport& r) { return r.mean_staleness.value_or(0); },
     [](const PhaseReport& r) { return r.mean_staleness.has_value(); }},
};

// The value of such a column; nullopt: the round has none.
std::optional<double> RoundValue(const PhaseReport& report, absl::string_view column);

// How the columns of what is evaluated begin: "clients_test_".
const char* ColumnPrefix(EvaluatedRows rows);

// Behind a prefix of clients: over how many the columns are, and how many could not be evaluated.
inline constexpr char kEvaluatedCount[] = "clients", kMissingCount[] = "missing";

// The share of the central test rows of other classes that a model gives the class of a backdoor,
// once they have its trigger.
inline constexpr char kBackdoorSuccess[] = "backdoor_success";

// "test_group2_"
std::string GroupPrefix(EvaluatedRows rows, uint32_t group);
// "test_accuracy_p90"
std::string StatisticName(const std::string& metric, const char* statistic);

// A column that the rows of a run can have.
struct MetricColumn {
  std::string name;
  std::optional<EvaluatedRows> of = {};  // what is evaluated; none: it is of training
  bool statistic = false;                // over clients
  // The word of evaluation.metrics that it needs; null: none.
  const char* metric = nullptr;
  // Why no row of this run will have a value, to follow the column's name in a message: "needs
  // [devices], …". Empty: rows may have one.
  std::string never = {};
};

// The divisions of the clients by which a run's columns are given, too.
std::vector<ClientGroups> DivisionsOf(const RunPlan& run, size_t models);

// All columns but `round`. A statistic or a metric is absent from rows to which no client
// contributed. `groups`: of concept shift. `backdoor`: the run is attacked by one.
std::vector<MetricColumn> MetricColumns(TaskKind task, const algorithms::Description& algorithm,
                                        const algorithms::Schema& schema, uint32_t groups = 1,
                                        bool backdoor = false,
                                        std::span<const ClientGroups> divisions = {});
// Those of a run, which says of some of them that they never have a value (MetricColumn::never).
std::vector<MetricColumn> ColumnsOf(const RunPlan& run, const algorithms::Description& algorithm,
                                    const algorithms::Schema& schema);

// What is said of columns: a name, or a pattern in which * stands for a metric ("train_*") and a
// word in capitals for a name.
struct ColumnHelp {
  std::string columns;
  std::string help;
};
std::vector<ColumnHelp> DescribeColumns();

}  // namespace macaw::server
