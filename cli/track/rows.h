#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/log/reader.h"

namespace macaw::cli {

// A number of a row: its value, and the same as metrics.jsonl writes it. "nan" stands for what is
// not finite.
struct Metric {
  std::string name;
  double value = 0;
  std::string text;
};

// A row of metrics.jsonl.
struct Row {
  int64_t round = 0;
  int64_t wall_ms = 0;  // Unix time at which the round was closed
  std::vector<Metric> metrics;
};

constexpr int64_t kNoRound = -1;  // before the first round, which may have the number 0

// Reads the rows of a run, also while the run goes on, and after a server has cut them back to its
// checkpoint: the rows that it then writes again are the same. One thread.
class RowReader {
 public:
  explicit RowReader(std::string folder) : folder_(std::move(folder)) {}

  // The rows of rounds behind `after`, in their order, at most `most` of them. Empty: there are no
  // more yet. An error names the file, and the line that is not a row.
  absl::StatusOr<std::vector<Row>> Next(int64_t after, size_t most);

 private:
  void ReadTimes();

  const std::string folder_;
  uint64_t offset_ = 0;  // behind the last line that was read
  int64_t last_ = kNoRound;
  // When rounds were closed, by the log of rounds: the first time, if a round was done again.
  std::optional<server::log::Reader> log_;
  int64_t began_ns_ = 0;
  std::map<int64_t, int64_t> closed_ms_;
};

// The round of a line of metrics.jsonl. Nothing: it is no row.
std::optional<int64_t> RoundOf(absl::string_view line);

}  // namespace macaw::cli
