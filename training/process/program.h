#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/child.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/work_counter.h"
#include "training/api/trainer.h"

namespace macaw::training::process {

// The owner's program as a child process that answers a line with a line. It finds its end of the
// channel and the memory file under the numbers in MACAW_CHANNEL and MACAW_MEMORY. What it prints
// goes to the log of this process. It is killed when the thread that started it ends. One thread at
// a time.
class Program {
 public:
  // `memory`, `rows`: descriptors of this process, which must live until the program has answered
  // once. Those of rows are -1 for a program that has its own; else MACAW_ROWS has the number.
  // `slot`: of this process, from 0. Its lines in the log begin with it, and MACAW_SLOT tells the
  // program which one of the host's it is, of MACAW_SLOTS.
  static absl::StatusOr<std::unique_ptr<Program>> Start(const ProgramOptions& options, int memory,
                                                        int rows, uint32_t slot);
  ~Program();  // closes the channel, on which the program should end, and kills it if it does not

  // Sends a line and returns the answer. Counts a piece of work when it has it, and one a second
  // while it waits. An error says how the program ended, or that it took too long; the program is
  // gone then.
  absl::StatusOr<std::string> Ask(absl::string_view line, WorkCounter* work);

 private:
  Program(const ProgramOptions& options, uint32_t slot, Child child, Fd channel, Fd output)
      : options_(options),
        child_(std::move(child)),
        channel_(std::move(channel)),
        output_(std::move(output)),
        slot_(slot) {}

  // Moves what can be moved now. False: the program has closed its end.
  bool Send(std::string& line);
  bool Receive();
  void ReadOutput();
  void Print(absl::string_view line);
  // Waits for the program until `deadline`, at most; then kills it. How it ended.
  Exit End(TimePoint deadline);

  const ProgramOptions options_;
  Child child_;
  Fd channel_, output_;
  const uint32_t slot_;
  bool ended_ = false;
  std::string received_;                // of the channel, without the lines that were returned
  std::string printed_;                 // the beginning of a line
  std::deque<std::string> last_lines_;  // that it printed
};

}  // namespace macaw::training::process
