#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/peer/channel.h"
#include "core/work_counter.h"

namespace macaw::peer {

// The process at the other end of a channel, as a Peer needs it. One thread at a time.
class Process {
 public:
  virtual ~Process() = default;
  // A descriptor that is readable once the process has ended.
  virtual int ended() const = 0;
  // A descriptor that is readable once the process has printed something; −1: its output goes
  // elsewhere.
  virtual int output() const { return -1; }
  // Takes what the process has printed, a piece at a time.
  virtual void ReadOutput() {}
  virtual void Kill() = 0;
  // Waits for the end, and says how the process ended: "exit code 3: no such file". At most once.
  virtual std::string Reap() = 0;
};

// How long a Peer waits for an answer.
struct Patience {
  double seconds = 0;
  std::string
      limit;  // what sets the seconds, for the message: "workers.turn_seconds"; may be empty
};

// Another process that answers a line with a line. One thread at a time.
class Peer {
 public:
  struct Options {
    std::string name = "its process";  // the subject of messages
    size_t longest_answer = size_t{1} << 20;
    // How long the process may take to end by itself after its channel is closed. 0: it is left to
    // the destructor of Process.
    Duration farewell{};
    // The calling thread yields its processor for a millisecond before it sleeps. A processor that
    // idles takes several times as long to wake as a short answer takes.
    bool yields = false;
  };

  Peer(Options options, Channel channel, std::unique_ptr<Process> process)
      : options_(std::move(options)), channel_(std::move(channel)), process_(std::move(process)) {}
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Sends a line, with `files` (at most Channel::kMostFiles), and returns the answer. Counts a
  // piece of work for the answer, and one for each second of waiting. An Internal error says what
  // the process did instead: it ended, closed its channel, took too long, answered without end or
  // said a line before it was asked, which would be taken for the answer.
  // The process is gone then, and each later call is an error.
  absl::StatusOr<std::string> Ask(std::string line, const Patience& patience,
                                  std::span<const int> files = {}, WorkCounter* work = nullptr);
  // The same without a question.
  absl::StatusOr<std::string> Hear(const Patience& patience) { return Wait("", patience, {}, {}); }

 private:
  absl::StatusOr<std::string> Wait(std::string unsent, const Patience& patience,
                                   std::span<const int> files, WorkCounter* work);
  // Waits until `until`, or until something has come, was printed or can be sent. False: the
  // process has ended.
  bool Sleep(TimePoint until, bool sends);
  struct End {
    bool by_itself = false;
    std::string how;
  };
  End Finish(Duration farewell);

  const Options options_;
  Channel channel_;
  const std::unique_ptr<Process> process_;
  bool ended_ = false;
};

}  // namespace macaw::peer
