#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "algorithms/around/registry.h"

namespace macaw::cli {

// The main results of a run that is over, from its summary.json.
struct RunResult {
  struct Best {
    double value = 0;
    uint32_t round = 0;
    // The metrics of test rows in that round, unless the best is one of them.
    std::map<std::string, double> report = {};
  };

  std::string folder;
  std::string name, algorithm;
  std::string end;                              // "finished", "stopped", "interrupted"
  std::string reason;                           // why it was stopped; "": not known
  std::map<std::string, std::string> settings;  // what differs from the defaults; JSON by key
  std::map<std::string, std::string> inputs;    // digests of files by key; empty: not known
  uint64_t seed = 0;
  uint32_t rounds = 0;
  double seconds = 0, rounds_per_second = 0;
  std::string model_digest, data_digest;
  std::map<std::string, double> final;      // by metric
  std::set<std::string> undefined;          // metrics whose last value is no number (divergence)
  std::string best_metric;                  // what the run's own best round was chosen by
  std::map<std::string, Best> bests;        // of the metrics of test and validation rows
  uint32_t best_not_kept = 0;               // with run.stop.patience: a best round without a model
  std::map<std::string, double> rounds_to;  // first round of an accuracy, by accuracy ("0.9")
  // What all rounds cost ("total_bytes_up", "total_bytes_down", "total_virtual_seconds" of a run
  // with virtual time), and those up to an accuracy's first round: "bytes_up_to_0.9",
  // "virtual_seconds_to_0.9".
  std::map<std::string, double> costs;
  uint64_t left_out = 0;         // clients' turns that did not count, in all rounds
  uint64_t left_out_rounds = 0;  // rounds with such turns
  uint64_t coarse_rounds = 0;    // whose sums round most of the updates away

  bool done() const { return end == "finished" || end == "stopped"; }
};
absl::StatusOr<RunResult> ReadResult(const std::string& folder);

// Every value by which runs can be compared: the final metrics, "best_" and a metric of test or
// validation rows, a metric of test rows at that round ("test_accuracy_at_best_val_accuracy"),
// "rounds_to_" and an accuracy, "seconds", "rounds_per_second", those of RunResult::costs.
std::map<std::string, double> ValuesOf(const RunResult& run);
// Whether a run with these values had a clock ([devices]).
bool HasClock(const std::map<std::string, double>& values);
std::string AtBest(const std::string& reported, const std::string& chosen_by);  // its name

// Whether a metric says what it took to reach an accuracy: "rounds_to_0.9", "bytes_up_to_0.9",
// "bytes_down_to_0.9", "virtual_seconds_to_0.9", of one of the accuracies that summaries have. A
// run that did not reach it has no such value, and is not the worse for it in other metrics.
bool IsTarget(const std::string& metric);
// Whether a metric is of virtual seconds, which runs without [devices] do not have.
bool IsOfVirtualTime(const std::string& metric);
// Returns an error if it looks like one, with another accuracy. `key`: where it stands.
absl::Status CheckTarget(const std::string& key, const std::string& metric);
// The accuracy by which a run's targets are counted: that of its best round. "": it has none.
std::string TargetAccuracyOf(const RunResult& run);
// The targets that a run with these values could have reached.
std::vector<std::string> TargetsOf(const std::map<std::string, double>& values);

// Whether a value by which runs can be compared is the last one of a column of metrics.jsonl.
bool IsColumn(const std::string& metric);
// Whether a value by which runs can be compared is of test rows: a column, or best_ and one.
bool ChoosesByTestRows(const std::string& metric);
// What a reader must know of a choice that was made by it; a sentence.
std::string TestRowsChooseText(const std::string& metric);

// The keys whose values differ between the runs, the algorithm first ("algorithm.name").
std::vector<std::string> DifferingKeys(const std::vector<RunResult>& runs);
// The value of a key as people read it, a default included. "": the run's rule has no such key, or
// the key has no default.
std::string SettingOf(const RunResult& run, const std::string& key,
                      const algorithms::Registry& registry);

// An accuracy that ended far below its best: it lost more than a quarter of what the best had
// gained over guessing (1 / classes). A best that gained less than a quarter of the way from
// guessing to 1 is not considered. A run that chooses by balanced accuracy may give up accuracy, so
// only balanced ones are.
struct Drop {
  std::string metric;
  double last = 0, best = 0, guess = 0;
  uint32_t best_round = 0;
};
std::vector<Drop> DropsOf(const RunResult& result);
std::string WarningText(const Drop& drop, const RunResult& result);  // two sentences
// That model.best.safetensors is missing, and why; "": it is there, or nothing asks for it.
std::string BestNotKeptText(const RunResult& result);

// Clients' turns that did not count, and where to look, in a sentence; empty: all counted.
std::string LeftOutText(const RunResult& result);

// That the sums of some rounds were too coarse, and what to do, in two sentences; empty: none was.
std::string CoarseSumsText(const RunResult& result);

// A few lines: how long, how good, where, and how to open it in Python.
std::string ResultText(const RunResult& result);

}  // namespace macaw::cli
