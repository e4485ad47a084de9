#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/process/line_reader.h"
#include "cli/process/restart_policy.h"
#include "cli/process/supervisor.h"
#include "core/files.h"
#include "testing/temporary_folder.h"

namespace macaw::cli {

// Servers and workers are shell scripts. In them READY and REPORT stand for the descriptors' files,
// DIR for a private folder with a fifo, ADDRESS for what the worker was told to dial.
class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() { EXPECT_EQ(::mkfifo((dir_ + "/fifo").c_str(), 0600), 0); }

  SupervisorOptions Options(const std::string& server, const std::string& worker,
                            uint32_t workers = 1) {
    SupervisorOptions options;
    options.workers = workers;
    options.server = [=, this](const ServerStart& start) {
      ChildSpec spec{.name = "macaw-server",
                     .log = dir_ + "/server.log",
                     .inherit = {start.ready_fd, start.report_fd}};
      const std::string script =
          absl::StrReplaceAll(server, {{"READY", absl::StrCat("/dev/fd/", start.ready_fd)},
                                       {"REPORT", absl::StrCat("/dev/fd/", start.report_fd)},
                                       {"AGAIN", start.again ? "again" : "first"},
                                       {"BEFORE", start.address},
                                       {"DIR", dir_}});
      spec.argv = {"/bin/sh", "-c", script};
      if (alive_.write.open()) spec.inherit.push_back(alive_.write.get());
      return spec;
    };
    options.worker = [=, this](uint32_t index, const std::string& address) {
      ChildSpec spec{.name = absl::StrCat("worker-", index),
                     .log = absl::StrCat(dir_, "/worker-", index, ".log")};
      spec.argv = {"/bin/sh", "-c",
                   absl::StrReplaceAll(worker, {{"DIR", dir_}, {"ADDRESS", address}})};
      if (alive_.write.open()) spec.inherit.push_back(alive_.write.get());
      return spec;
    };
    options.on_row = [this](const std::string& row) {
      const bool moved_on = !std::ranges::count(rows_, row);
      rows_.push_back(row);
      return moved_on;
    };
    options.say = [this](const std::string& message) {
      said_.push_back(message);
      if (said_pipe_.write.open()) WriteLine(said_pipe_.write.get(), message);
    };
    return options;
  }

  static void WriteLine(int fd, const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Supervises in a process of its own, which exits with 0 finished, 1 interrupted, 2 killed, 3
  // failed. What it says comes through said_pipe_; alive_ ends when no child is left that holds it.
  pid_t Fork(const SupervisorOptions& options) {
    EXPECT_TRUE(said_pipe_.read.open() && alive_.read.open());
    const pid_t pid = ::fork();
    if (pid == 0) {
      const absl::StatusOr<SupervisedEnd> end = Supervise(options);
      ::_exit(end.ok() ? static_cast<int>(*end) : 3);
    }
    said_pipe_.write.Close();
    alive_.write.Close();
    return pid;
  }
  void MakePipes() {
    alive_ = *MakePipe();
    said_pipe_ = *MakePipe();
  }
  std::string NextLineOf(PipePair& pipe) {
    while (lines_.empty()) {
      for (std::string& line : reader_.Read(pipe.read.get())) lines_.push_back(std::move(line));
      if (reader_.ended()) return "(end)";
    }
    std::string line = lines_.front();
    lines_.erase(lines_.begin());
    return line;
  }
  // Blocks until every child is gone: they all hold the other end.
  void AwaitNoChildLeft() {
    char byte;
    EXPECT_EQ(::read(alive_.read.get(), &byte, 1), 0);
  }
  static int ExitCodeOf(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const testing_support::TemporaryFolder folder_;
  const std::string dir_ = folder_.path();
  std::vector<std::string> rows_, said_, lines_;
  PipePair alive_, said_pipe_;
  LineReader reader_;
};

}  // namespace macaw::cli
