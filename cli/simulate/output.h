#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/simulate/result.h"

namespace macaw::cli {

// What `macaw simulate` tells of a run, in the order of these methods. One thread.
class RunOutput {
 public:
  virtual ~RunOutput() = default;
  // A line before the run begins: what = "data", "model", "note", …
  virtual void Say(absl::string_view what, absl::string_view text) = 0;
  // The run has a folder, and goes on for so many rounds in all.
  virtual void Begin(const std::string& folder, uint32_t rounds) = 0;
  virtual void Row(const std::string& row) = 0;          // a round is done: a row of metrics.jsonl
  virtual void Message(const std::string& message) = 0;  // during the rounds
  virtual void Error(const absl::Status& status, int code) = 0;
  virtual void Result(const RunResult& result) = 0;
  // The last thing. `go_on`: the folder to resume; "": there is none.
  virtual void End(int code, const std::string& go_on) = 0;
};

// For people: opening lines and errors on standard error, the result on standard output. Rows and
// messages are the progress line's (progress.h). `quiet`: errors, and the folder of a finished run.
std::unique_ptr<RunOutput> OutputForPeople(bool quiet);

// For programs (`--json`): one JSON object a line. Paths are absolute.
//   {"event": "said", "what", "text"}       a line that people would see before the run
//   {"event": "begun", "folder", "rounds"}
//   {"event": "round", "row": {…}}          a row of metrics.jsonl
//   {"event": "message", "text"}            such as: a worker was started again
//   {"event": "error", "code", "message", "place", "key", "meant"}     (key_error.h)
//   {"event": "result", "folder", "warnings": […]}     the run is over; summary.json has the rest
//   {"event": "end", "code", "go_on"}       always the last line; code is the exit code
std::unique_ptr<RunOutput> OutputAsJson(std::function<void(const std::string& line)> write);

}  // namespace macaw::cli
