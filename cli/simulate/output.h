#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cli/results/result.h"

namespace macaw::cli {

// What `macaw simulate` and `macaw sweep` tell, of a run or of many. This one tells nothing. One
// thread.
class Output {
 public:
  virtual ~Output() = default;
  // A line before the rounds begin: what = "data", "model", "note", …
  virtual void Say(absl::string_view what, absl::string_view text);
  virtual void Row(const std::string& row);          // a round is done: a row of metrics.jsonl
  virtual void Message(const std::string& message);  // while rounds are being done
  virtual void Error(const absl::Status& status, int code);
  virtual void Result(const RunResult& result);             // a run is over
  virtual void Estimate(const std::string& text);           // for people alone (estimate.h)
  virtual void Event(const nlohmann::ordered_json& event);  // for programs alone
  // The last thing. `folder`: what goes on with the command `command`; "": nothing does.
  virtual void End(int code, const std::string& folder, const std::string& command);
};

// For people. Opening lines go to `say`, the result to standard output, errors to standard error.
// Rows are the progress line's (progress.h), which `message` shows messages beside. `quiet`:
// errors, and the folder of a finished run.
struct PeopleOptions {
  bool quiet = false;
  std::function<void(absl::string_view line)> say;           // null: to standard error
  std::function<void(absl::string_view line)> message = {};  // null: shown by others
};
std::unique_ptr<Output> OutputForPeople(PeopleOptions options);

// For programs (`--json`): one JSON object a line, to `write`. Paths are absolute.
//   {"event": "said", "what", "text"}       a line that people would see before the rounds
//   {"event": "begun", "folder", "rounds"}  of a run
//   {"event": "round", "row": {…}}          a row of metrics.jsonl
//   {"event": "message", "text"}            such as: a worker was started again
//   {"event": "error", "code", "message", "place", "key", "meant"}     (key_error.h)
//   {"event": "result", "folder", "warnings": […]}     the run is over; summary.json has the rest
//   {"event": "estimate", …}                of `--estimate`, instead of a run (EstimateJson)
//   {"event": "end", "code", "go_on"}       always the last line; code is the exit code
// Those of a sweep beside them are in cli/sweep/sweep.h.
std::unique_ptr<Output> OutputAsJson(std::function<void(const std::string& line)> write);

// For programs with `json`, to standard output; else for people.
std::unique_ptr<Output> OutputFor(bool json, PeopleOptions options);

// The path as events give it; "" stays "".
std::string AbsolutePath(const std::string& path);

}  // namespace macaw::cli
