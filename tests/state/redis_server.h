#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "state/redis_pool.h"
#include "tests/state/states.h"

namespace macaw::state {

// A real redis-server of the test's own, on a Unix socket in a folder of its own.
class RedisServer {
 public:
  static bool Available() { return ::access("/usr/bin/redis-server", X_OK) == 0; }

  explicit RedisServer(std::vector<std::string> settings = {}) : settings_(std::move(settings)) {
    ::signal(SIGPIPE, SIG_IGN);
    Start();
  }
  ~RedisServer() { Kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // Keeps everything in its append-only file. The server dies with the thread that started it.
  void Start() {
    std::vector<std::string> words = {
        "redis-server", "--port",     "0",      "--unixsocket", socket(), "--dir",
        folder_.path(), "--save",     "",       "--appendonly", "yes",    "--appendfsync",
        "no",           "--loglevel", "warning"};
    words.insert(words.end(), settings_.begin(), settings_.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int log = ::open((folder_.path() + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execv("/usr/bin/redis-server", argv.data());
    ::_exit(127);
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void Signal(int signal) const { ::kill(pid_, signal); }
  void Forget() const { std::filesystem::remove_all(folder_.path() + "/appendonlydir"); }

  std::string socket() const { return folder_.path() + "/socket"; }
  std::string url() const { return "unix:" + socket(); }
  RedisPool::Options options(Duration patience = FromSeconds(60)) const {
    RedisUrl url;
    url.socket = socket();
    return {.url = url, .answer = FromSeconds(2), .patience = patience};
  }
  // Sends one command from a connection of its own.
  void Tell(RedisCommand command) const {
    RedisPool pool(options());
    const RedisCommand commands[] = {std::move(command)};
    const auto replies = pool.Call(commands);
    if (!replies.ok()) throw std::runtime_error(std::string(replies.status().message()));
  }

 private:
  const std::vector<std::string> settings_;
  const TemporaryFolder folder_;
  pid_t pid_ = -1;
};

}  // namespace macaw::state
