#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/clock.h"

namespace macaw::cli {

struct ProgressOptions {
  bool terminal =
      false;           // one live line, redrawn at every step; else plain lines, about one a second
  bool quiet = false;  // shows no progress
  // The width of the terminal, in columns. Asked before each drawing, since the user may resize the
  // window.
  std::function<size_t()> width = [] { return size_t{80}; };
  uint32_t rounds = 1;
  uint64_t cohort = 0;  // clients a round
};

// Shows the user the progress of a run, from rows of metrics.jsonl. Its rates are those of the last
// seconds. One thread.
class Progress {
 public:
  // `clock` must outlive it; `write` gets raw text for the terminal or log.
  Progress(ProgressOptions options, const Clock& clock,
           std::function<void(absl::string_view)> write);

  // Takes a row, a JSON object. Ignores anything else, and rounds that have been shown (a restarted
  // server repeats some). Returns whether the row was new.
  bool OnRow(absl::string_view row);
  void Say(absl::string_view message);  // a line of its own; shown even when quiet
  void Finish();                        // shows the newest row and ends the live line

  // The current line, "round 37/200  loss 0.512 …", in at most `room` columns. The least important
  // parts are left out first.
  std::string Line(size_t room = SIZE_MAX) const;

 private:
  void Draw();
  double RoundsPerSecond() const;

  const ProgressOptions options_;
  const Clock& clock_;
  const std::function<void(absl::string_view)> write_;
  uint32_t round_ = 0;
  std::optional<double> loss_, accuracy_;
  uint64_t left_out_ = 0;  // clients' turns that did not count, in all rounds shown
  std::deque<std::pair<TimePoint, uint32_t>>
      window_;  // (when, round), the oldest about ten seconds ago
  std::optional<TimePoint> drawn_at_;
  bool live_ = false;     // the cursor stands behind an unfinished line
  bool undrawn_ = false;  // the newest row has not been shown
};

// For Progress: the width of the terminal behind standard error (80 where there is none), and text
// written there.
size_t TerminalWidth();
void WriteToStandardError(absl::string_view text);

// "0:07", "12:34", "3:04:05"
std::string ClockText(double seconds);

}  // namespace macaw::cli
