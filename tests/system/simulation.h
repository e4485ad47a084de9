#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "testing/program.h"

namespace macaw::testing_support {

// One `macaw simulate` as a child process, with everything it leaves behind. The destructor kills
// what still runs.
class Simulation {
 public:
  // `arguments` follow `macaw simulate`. The run's folder is a fresh one under the test's temporary
  // folder unless the arguments name one (--out or --resume).
  explicit Simulation(const std::string& name, std::vector<std::string> arguments,
                      const std::string& macaw = "macaw");

  int Wait();                     // exit code; 128 + n after signal n
  void Signal(int signal) const;  // to the parent process only
  bool running() const;

  std::string output() const;  // what it printed, both streams
  const std::string& folder() const { return folder_; }
  nlohmann::json summary() const;
  std::string digest() const;   // of the final model, "" without a summary
  std::string metrics() const;  // the bytes of metrics.jsonl
  std::vector<nlohmann::json> events() const;

  // Blocks until a line of events.jsonl fulfils the condition (true), or the simulation has ended
  // (false). `folder`: of another run that it makes (--repeat).
  bool WaitForEvent(const std::function<bool(const nlohmann::json&)>& condition,
                    const std::string& folder = "") const;

  // Blocks until a round is over that is not over at this moment (true), or the simulation has
  // ended (false). A test that is late goes on with the round of that moment.
  bool WaitForANewRound() const;

  // The same for a text in what it prints, so many times.
  bool WaitForOutput(const std::string& text, int times = 1) const;

  // Live children by program name ("macaw-worker").
  std::vector<pid_t> Children(const std::string& program) const;

 private:
  // Blocks until `found()` (true), asked whenever something changes at `path`, or its end (false).
  bool WaitForChange(const std::string& path, const std::function<bool()>& found) const;

  std::string folder_;
  std::string output_path_;
  std::optional<Program> program_;
};

// A copy of `macaw` beside which one program is a script of the shell, for Simulation. The script
// has $real, the program's path, and $folder, where the copy is.
std::string MacawWith(const std::string& program, const std::string& script);

// Runs a program to its end, with arguments for a shell.
Printed RunMacaw(const std::string& arguments);
Printed RunProgram(const std::string& program, const std::string& arguments);

// A small, complete job on the committed images: three rounds of a small network in about a second.
std::string WriteConfig(const std::string& name, const std::string& more = "");

// Settings that give a round's turns a pause each. With many rounds of them a run still has ten
// seconds to go when a test kills it that was woken late.
std::vector<std::string> Pauses(const std::string& seconds);

// The arguments that resume a run without such pauses.
std::vector<std::string> ResumeWithoutPauses(const Simulation& simulation);

// Waits until none of these processes exists; false after ten seconds.
bool AllGone(const std::vector<pid_t>& processes);

}  // namespace macaw::testing_support
