#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/results/statistics.h"

namespace macaw::cli {

// One run in a row of a table.
struct TableRun {
  enum class State : uint8_t { kOpen, kDone, kFailed };

  uint64_t seed = 0;
  std::string name;  // a sweep's job, "007-seed1"; "" elsewhere
  std::string folder;
  State state = State::kDone;
  bool goes_on = false;                  // of a halving: it is done here, and at a further rung
  std::string why;                       // of a run that failed
  std::map<std::string, double> values;  // of a run that is done; the table's metrics at least
  std::string accuracy = {};             // by which its targets are counted; "": not known
  bool has_clock = true;                 // it has [devices]: else it has no virtual seconds
};

// The runs of one configuration.
struct TableRow {
  std::string name;                              // "007" in a sweep; "" elsewhere
  std::vector<nlohmann::ordered_json> settings;  // parallel to the keys; null: has no such key
  uint32_t rounds = 0;
  size_t rung = 0;  // of a halving: rows of later rungs come first and have a best of their own
  // A sweep's baseline: it comes last and is not the best, however good it is.
  bool baseline = false;
  std::vector<TableRun> runs;

  // Summarise sets these.
  // Parallel to the metrics; n = 0: a run that is done lacks it. Of a target (result.h) over the
  // runs that have reached it, however many these are.
  std::vector<Estimate> values;
  // With the best row, over common seeds. None: this is the best row, or there is no common seed.
  std::optional<PairedComparison> against_best;
  std::optional<double> p_holm;  // Holm's, over all rows

  size_t done() const;  // runs that are done
  // Those of them that could have reached this target: without a clock none of virtual seconds.
  size_t could_reach(const std::string& target) const;
};

// The one table of results: a sweep's, a repeat's and that of `macaw compare`. One thread.
struct ResultTable {
  std::vector<std::string> keys;     // what differs: "algorithm.name", "local.lr", …
  std::vector<std::string> metrics;  // the names that ValuesOf has (result.h)
  size_t further = 0;                // so many of the last metrics were not asked for
  std::optional<size_t> chosen;      // the metric by which rows are compared with the best one
  bool higher = true;                // more of that metric is better
  bool best_first = false;           // rows are sorted by it; false: they keep their order
  bool halved = false;               // rows may have different rounds
  std::vector<TableRow> rows;
  std::optional<size_t> best;      // a row; none: no run is done, or nothing is chosen
  std::vector<std::string> equal;  // settings that all rows share: "local.lr 0.05"
  std::vector<std::string> notes;  // what a reader of the table must know; whole sentences

  size_t Count(TableRun::State state) const;  // a run that goes on is open
  size_t runs() const;
  bool several_seeds() const;
  bool paired() const;                 // shows comparisons with the best row
  bool has_equal_differences() const;  // a row is equally far from the best with each seed
};

// Computes everything that follows from the runs: estimates, the order, the best row, the paired
// comparisons, and the notes on them. Call once, when all rows are there.
void Summarise(ResultTable& table);

// For people: columns aligned, "0.9402 ± 0.0021", then why runs failed and the notes. A table of
// one row has a line a column.
std::string TableText(const ResultTable& table);

// For programs, one line a row, numbers exact: of each metric the mean under its own name, and
// _std, _low and _high behind it, of a target _reached too: by how many runs. Nothing that was
// measured with a clock, unless a metric was.
std::string TableCsv(const ResultTable& table);

// The same as one line of JSON, with each run: {"metric", "mode", "report", "rows_of_metric",
// "keys", "runs", "done", "failed", "best", "rows": [{"configuration", "values": {key: value},
// "baseline", "rounds", "mean", "std", "interval": [low, high], "report": {metric: {"mean", "std",
// "interval"}}, "against_best": {"difference", "interval", "p", "p_holm", "seeds"}, "runs":
// [{"name", "seed", "folder", "state", "value", "why"}]}]}. "metric" is the chosen one, "report"
// has the others, those that were not asked for in the rows alone. What is not there is null.
// Beside the mean of a target is "reached": by how many runs; null: none of them could.
std::string TableJson(const ResultTable& table);

// An estimate in JSON: {"mean", "std", "interval"}.
nlohmann::ordered_json JsonOf(const Estimate& estimate);

// A value of a key as people read it: "fedavg", "0.1"; "-" for null.
std::string PlainText(const nlohmann::ordered_json& value);

}  // namespace macaw::cli
