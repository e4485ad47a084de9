#pragma once

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "state/redis_pool.h"
#include "testing/program.h"
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
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // Keeps everything in its append-only file. The server dies with the thread that started it.
  void Start() {
    std::vector<std::string> words = {
        "--port",     "0",      "--unixsocket", socket(), "--dir",         folder_.path(),
        "--save",     "",       "--appendonly", "yes",    "--appendfsync", "no",
        "--loglevel", "warning"};
    words.insert(words.end(), settings_.begin(), settings_.end());
    process_.emplace("/usr/bin/redis-server", std::move(words), folder_.path() + "/log");
  }
  void Kill() { process_.reset(); }
  void Signal(int signal) const { process_->Signal(signal); }
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
  std::optional<testing_support::Program> process_;
};

}  // namespace macaw::state
