#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/child.h"
#include "core/fd.h"

namespace macaw::testing_support {

// What a program has printed, both streams, and its exit code; 128 + n after signal n.
struct Printed {
  int exit = -1;
  std::string text;
};

// Runs a command line of the shell to its end.
Printed RunShell(const std::string& command);

// A program as a child process (core/child.h), which the destructor kills. Start it on a thread
// that outlives it. One thread.
class Program {
 public:
  // `name`: a program of this build, or a path. Both its streams can be read here, or are appended
  // to the file `output`. A program that cannot be started has printed why, and its exit code is
  // 127.
  Program(const std::string& name, std::vector<std::string> arguments,
          const std::string& output = "");

  void Signal(int signal) const;
  bool running() const;
  // Reads on until it has printed this. False: it ends before.
  bool WaitFor(const std::string& text);
  // Reads the rest and returns its exit code; 128 + n after signal n. Every call returns the same.
  int Wait();
  const std::string& text() const { return text_; }
  pid_t pid() const { return pid_; }

 private:
  bool ReadMore();  // false: the program has closed its streams

  std::optional<Child> child_;
  pid_t pid_ = -1;
  Fd printed_;
  std::string text_;
  int exit_ = 127;
};

}  // namespace macaw::testing_support
