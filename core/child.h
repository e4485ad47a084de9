#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/fd.h"

namespace macaw {

struct PipePair {
  Fd read, write;  // both close on exec
};
absl::StatusOr<PipePair> MakePipe();

struct ChildSpec {
  std::string name;               // for messages: "worker-0"
  std::vector<std::string> argv;  // argv[0]: the program's path
  std::string log;                // standard output and error are appended here, unless …
  int output = -1;                // … they go to this descriptor
  std::string folder;             // it starts there; empty: where this process is
  // Added to the environment of this process, whose variables they replace.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<int> inherit;  // descriptors that the child keeps under the same numbers
};

// How a process ended.
struct Exit {
  int code = 0;    // if it returned
  int signal = 0;  // else: the signal that killed it
  // The line of its log that says why it ended, if there is a log and such a line. Empty for a
  // process that was killed: its last output does not explain that. A process that called abort()
  // is the exception.
  std::string words;
  double cpu_seconds = 0;   // user and system; with its own children that it waited for
  uint64_t peak_bytes = 0;  // of resident memory
  bool ok() const { return code == 0 && signal == 0; }
  std::string Text() const;  // "exit code 3: …", "killed by signal 11 (Segmentation fault)"
};

// A child process in a process group of its own, so that a terminal's Ctrl-C does not reach it. The
// kernel kills it when the thread that spawned it ends, for any reason, so spawn from the main
// thread. One owner, one thread. The destructor kills the whole group and reaps the process.
class Child {
 public:
  // An error says that the program could not be started, and why.
  static absl::StatusOr<Child> Spawn(const ChildSpec& spec);
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once the process has ended
  void Signal(int signal) const;              // to the process itself
  void Kill() const;                          // SIGKILL to the group
  bool Stopped();                             // whether SIGSTOP or a similar signal has stopped it
  Exit Reap();                                // waits for the end; at most once

 private:
  Child() = default;
  void Finish();

  std::string name_, log_;
  uint64_t log_begin_ = 0;  // where its own output begins in the log
  pid_t pid_ = -1;
  Fd pidfd_;
  bool stopped_ = false;
};

// A descriptor that is readable once the process has ended. It closes on exec.
absl::StatusOr<Fd> Watch(pid_t pid);
// Kills (SIGKILL) the process that is watched, and no other if it has ended.
void KillWatched(const Fd& watched);

// The file that a command names, as a shell would find it: a name without a slash is looked for on
// PATH. The command itself if there is no such file.
std::string FindOnPath(const std::string& command);

// The line to show from the log of a program that failed, searched from the byte `begin` on: the
// last line in which a program gives its error ("NAME: error: …"), else the last line that mentions
// an error, else the last line.
std::string LastErrorLine(const std::string& log, uint64_t begin = 0);

}  // namespace macaw
