#pragma once

#include <string>

#include "core/clock.h"

namespace macaw::cli {

// The warning that a line of the pipe below is; empty: it is a row.
std::string WarningIn(const std::string& line);

// The server's end of the pipe that carries finished rows to the process that shows the progress.
// Never blocks the rounds: a reader that is thousands of rows behind (a stopped terminal) misses
// rows, and metrics.jsonl has all of them. One thread.
class RowReporter {
 public:
  explicit RowReporter(int fd);  // -1: nobody listens
  void Report(const std::string& row);
  void Warn(const std::string& text);  // a line that the other end tells the user
  // The rounds are over: gives the reader what is left, as long as it takes some within `patience`.
  void Finish(Duration patience);

 private:
  void Write();  // as much as the pipe takes

  static constexpr size_t kMaxPending = 4 << 20;  // bytes: some 7000 rows
  int fd_;
  std::string pending_;  // begins in the middle of a line when the pipe took a part of it
};

}  // namespace macaw::cli
