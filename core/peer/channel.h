#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/fd.h"

namespace macaw::peer {

// This process's end of a stream of lines to and from another process: a Unix socket, which also
// carries descriptors. No method waits. One thread at a time.
class Channel {
 public:
  static constexpr size_t kMostFiles = 4;  // descriptors that go with a line

  struct Ends;
  static absl::StatusOr<Ends> Make();

  // For poll().
  int file() const { return socket_.get(); }
  void Close() { socket_.Close(); }

  // Sends what can be sent now, and takes it from `unsent`. The first byte carries `files`, which
  // are then empty. False: the other end is closed.
  bool Send(std::string& unsent, std::span<const int>& files);
  // Reads what has come, until more than `longest` bytes wait for the end of their line. False: the
  // other end is closed.
  bool Receive(size_t longest);

  // The first line that has come, without its end; none: no line is complete.
  std::optional<std::string> TakeLine();
  // Bytes that have come and have not been taken.
  size_t waiting() const { return received_.size(); }

 private:
  explicit Channel(Fd socket) : socket_(std::move(socket)) {}

  Fd socket_;
  std::string received_;
  size_t searched_ = 0;  // of received_, for the end of a line
};

struct Channel::Ends {
  Channel ours;
  Fd theirs;  // for the other process; closes on exec
};

}  // namespace macaw::peer
