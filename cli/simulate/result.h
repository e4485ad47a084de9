#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// The main results of a run that is over, from its summary.json.
struct RunResult {
  struct Best {
    double value = 0;
    uint32_t round = 0;
  };

  std::string folder;
  std::string name, algorithm;
  std::string end;                              // "finished", "stopped", "interrupted"
  std::map<std::string, std::string> settings;  // what differs from the defaults; JSON by key
  uint64_t seed = 0;
  uint32_t rounds = 0;
  double seconds = 0, rounds_per_second = 0;
  std::string model_digest, data_digest;
  std::map<std::string, double> final;      // by metric
  std::map<std::string, Best> bests;        // of the metrics of test rows
  std::map<std::string, double> rounds_to;  // first round of an accuracy, by accuracy ("0.9")
  uint64_t left_out = 0;                    // clients' turns that did not count, in all rounds
  uint64_t left_out_rounds = 0;             // rounds with such turns

  bool done() const { return end == "finished" || end == "stopped"; }
};
absl::StatusOr<RunResult> ReadResult(const std::string& folder);

// Every value by which runs can be compared: the final metrics, "best_" and a metric of test rows,
// "rounds_to_" and an accuracy, "seconds", "rounds_per_second".
std::map<std::string, double> ValuesOf(const RunResult& run);

// An accuracy that ended far below its best: it lost more than a quarter of what the best had
// gained over guessing (1 / classes). A best that gained less than a quarter of the way from
// guessing to 1 is not considered.
struct Drop {
  std::string metric;
  double last = 0, best = 0, guess = 0;
  uint32_t best_round = 0;
};
std::vector<Drop> DropsOf(const RunResult& result);
std::string WarningText(const Drop& drop, const RunResult& result);  // two sentences

// Clients' turns that did not count, and where to look, in a sentence; empty: all counted.
std::string LeftOutText(const RunResult& result);

// A few lines: how long, how good, where, and how to open it in Python.
std::string ResultText(const RunResult& result);

// Mean and standard deviation (of a sample: n − 1) of each final metric, in a table.
struct Spread {
  std::string metric;
  double mean = 0, std = 0;
  std::vector<double> values;  // parallel to the runs
};
Spread SpreadOf(const std::string& metric, std::vector<double> values);
std::vector<Spread> SpreadOf(const std::vector<RunResult>& runs);
std::string SpreadText(const std::vector<Spread>& spreads);

// "1 to 3", "1 to 3, 7", "5": of a sorted list.
std::string SeedsText(const std::vector<uint64_t>& seeds);

}  // namespace macaw::cli
