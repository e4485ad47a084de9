#pragma once

#include <grpcpp/alarm.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/clock.h"
#include "core/digest.h"
#include "proto/wire/download_turns.h"

namespace macaw::wire {

// One download's wait for the turn of its node. Three events end it, and each may come on a thread
// of its own: the turn (on a thread that gives turns on), the pulse (on gRPC's timer), and the end
// of the caller (on a thread of gRPC). The first one ends the wait, the others then do nothing. So
// a download is begun or ended once, and by one thread. Thread-safe.
class TurnWait {
 public:
  enum class Over : uint8_t { kTurn, kPulse };  // kPulse: it is not the node's turn yet
  // `waited`: at a pulse, DownloadTurns::TakeWaited.
  using Then = std::function<void(Over, Duration waited)>;

  // Calls `then` at most once, from any thread, perhaps before the constructor returns. `turns`
  // must outlive it. What `then` refers to must live until it is called or Stop returns true.
  TurnWait(DownloadTurns& turns, const std::string& node, const Digest& blob, Then then);

  // The caller has gone. Whether this ended the wait: `then` was not called and will not be.
  bool Stop();

  // As in DownloadTurns, for this download: a chunk was sent, and the download has ended.
  void Moved() { turns_.Moved(number_); }
  void Leave(bool complete) { turns_.Leave(number_, complete); }

 private:
  class Pending;

  DownloadTurns& turns_;
  const std::shared_ptr<Pending> pending_;
  const uint64_t number_;  // of the download among the turns
  grpc::Alarm pulse_;
};

}  // namespace macaw::wire
