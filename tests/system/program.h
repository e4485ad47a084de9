#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

namespace macaw::testing_support {

// One of the programs as a child process; both its streams can be read here.
class Program {
 public:
  Program(const std::string& name, std::vector<std::string> arguments) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), MACAW_BIN_DIR "/" + name);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    stream_ = ::fdopen(ends[0], "r");
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::fclose(stream_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Signal(int signal) const { ::kill(pid_, signal); }
  // Reads on until it has printed this; false when it ends before.
  bool WaitFor(const std::string& text) {
    while (text_.find(text) == std::string::npos) {
      char line[4096];
      if (std::fgets(line, sizeof(line), stream_) == nullptr) return false;
      text_ += line;
    }
    return true;
  }
  int Wait() {                            // its exit code; 128 + n after signal n
    (void)WaitFor(std::string(1, '\0'));  // all that it prints
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& text() const { return text_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  FILE* stream_ = nullptr;
  std::string text_;
};

}  // namespace macaw::testing_support
