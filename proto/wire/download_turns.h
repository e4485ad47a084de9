#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/digest.h"

namespace macaw::wire {

struct TurnLimits {
  size_t at_once = 0;                       // nodes that fetch a large blob; 0: any number
  uint64_t from = uint64_t{64} << 20;       // bytes of a large blob
  Duration turn = std::chrono::minutes(2);  // after it a node no longer counts: others may begin
  // A node to which nothing was sent for so long has gone, and its turn is over. Between two slices
  // it is not gone.
  Duration gone = std::chrono::seconds(10);
  // A node that waits is sent a little this often. It takes a connection on which nothing comes for
  // 30 s for a broken one.
  Duration pulse = std::chrono::seconds(8);
};

// Which nodes may fetch a large blob now. With all at once, each gets its share of the server's
// line, and all begin to train, and later to send, at the same time. One after the other, the first
// trains and sends while the others fetch. A node keeps its turn until it has the last byte, and
// its place among those that wait from one download to the next. Once it has a blob it makes way
// for one other node, and stands before all that have not begun: so it fetches its next blob, such
// as the control variate beside a model. That is in what is left of its turn, or after a blob that
// took longer in a second one. It has one turn at a time, whatever it fetches, so a node that asks
// for all large blobs at once keeps the others no longer than any other node. Thread-safe.
class DownloadTurns {
 public:
  using Go = std::function<void()>;

  // `clock` must outlive it.
  DownloadTurns(const TurnLimits& limits, const Clock& clock) : limits_(limits), clock_(clock) {}

  const TurnLimits& limits() const { return limits_; }
  bool IsFor(uint64_t blob_bytes) const {
    return limits_.at_once > 0 && blob_bytes >= limits_.from;
  }

  // A download of `node` begins. Calls `go` when it is the node's turn: before this returns, or
  // from a later call of any thread, perhaps while Leave runs. Returns the download's number.
  uint64_t Enter(const std::string& node, const Digest& blob, Go go) ABSL_LOCKS_EXCLUDED(mutex_);
  // A chunk was sent.
  void Moved(uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // The download has ended; `complete`: with the blob's last byte.
  void Leave(uint64_t number, bool complete) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives on the turns that time has ended. Each download that waits calls it at each pulse.
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);
  // How long the download's node has waited for its turn since the last call for one of its
  // downloads. 0: it has its turn.
  Duration TakeWaited(uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Node {
    std::string name;
    Digest blob;                     // that it asked for last
    std::optional<TimePoint> began;  // its turn; none: it waits
    Duration used{};                 // of its turn, before it made way
    bool second = false;             // its first turn was over when it made way
    TimePoint waits;                 // since when, as far as nobody has asked
    TimePoint seen;                  // a download of it began, moved or ended
    std::map<uint64_t, Go> open;     // its downloads; empty functions: they have begun
  };

  std::list<Node>::iterator Of(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasATurn(const Node& node, TimePoint now) const;
  // The node has all that it asked for.
  void MakeWay(std::list<Node>::iterator of, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out what is to be called, without the lock.
  std::vector<Go> Grant() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TurnLimits limits_;
  const Clock& clock_;
  absl::Mutex mutex_;
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
  // In the order in which they asked; in front those that have made way.
  std::list<Node> nodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
