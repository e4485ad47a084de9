#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/token_bucket.h"
#include "proto/wire/limits.h"

namespace macaw::wire {

struct GuardLimits {
  // A connection is a stranger's until a unary call with a good certificate has arrived over it, or
  // the headers of a stream. The bytes count once gRPC has read them, handshake included. A read
  // takes 64 KiB, and another one may begin before the headers in it have been looked at.
  uint64_t stranger_bytes = 4 * kMaxFirstBytes;
  Duration stranger_time = std::chrono::seconds(15);   // since it was accepted
  Duration enrolment_time = std::chrono::seconds(20);  // since its last whole request to enrol
  int enrolments = 4;                                  // whole requests to enrol
  size_t strangers = 512;                              // connections at once
  // The same of one address, and of an address from which known callers are connected: it may stand
  // for many devices.
  size_t strangers_of_address = 64, strangers_of_known_address = 256;
  // How often an address may come; four times as many at once, if known callers are connected from
  // it. A connection whose caller shows who it is counts no longer, so devices come back at any
  // rate; one that is cut counts as many more.
  Allowance arrivals = {.every = std::chrono::milliseconds(60), .burst = 256};
  int cut_counts = 16;
  // Connections of one name at once. A further one ends the oldest.
  size_t of_name = 64;
};

// What callers over TLS may cost a server before they have shown who they are. gRPC has one set of
// limits for all connections and applies them to whole messages, so this looks at sockets: the
// kernel counts what was read from each. A connection over its limit is reset, and gRPC then
// drops all that it holds for it. Thread-safe.
class ConnectionGuard {
 public:
  // Told of each connection that is cut or not admitted: its address without the port, and why.
  using Tell = std::function<void(absl::string_view address, absl::string_view why)>;

  // `tick` is called about once a second while there are connections. Both run on any thread, under
  // no lock of the guard's that they could need again, `tell` under one: it must not call back.
  ConnectionGuard(const GuardLimits& limits, Tell tell, std::function<void()> tick);
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

  // Takes note of a connection that was accepted. False: hang up. It is also false while another
  // connection from the same address and port is open, to another address of this machine. Whoever
  // owns the descriptor may close it at any time without a word.
  bool Admit(int fd);

  // A call with a good certificate has arrived, or the headers of a stream. `peer` is gRPC's name
  // of the other end. `certificate` is asked once for a connection.
  void Identified(absl::string_view peer, const std::string& name,
                  absl::FunctionRef<std::string()> certificate);
  // A whole request to enrol has arrived.
  void Enrols(absl::string_view peer);

  // Cuts the connections of known callers of which `why` gives a reason ("": it stays).
  void CutWhere(
      absl::FunctionRef<std::string(const std::string& name, const std::string& certificate)> why);

  size_t strangers() const;
  size_t known() const;

 private:
  struct Connection {
    int fd = -1;
    uint64_t cookie = 0;  // the kernel's number of the socket, which is never used again
    std::string peer, address;
    TimePoint deadline{};  // of a stranger
    int enrolments = 0;
    std::string name;  // of a known caller; "": a stranger
    std::string certificate;
  };

  void Loop();
  void OnEvent(uint64_t cookie, uint32_t events) ABSL_LOCKS_EXCLUDED(mutex_);
  // Cuts strangers that are late and forgets connections that are gone.
  void Look(TimePoint now, bool all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Connection* Find(absl::string_view peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t MostOf(const std::string& address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Allowance ArrivalsOf(const std::string& address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoStranger(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutLoud(const Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cut(const Connection& connection, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same of a stranger, whose address pays for it.
  void CutStranger(const Connection& connection, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(uint64_t cookie) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GuardLimits limits_;
  const Tell tell_;
  const std::function<void()> tick_;
  const Fd epoll_, wake_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, uint64_t> by_peer_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint64_t> strangers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, size_t> strangers_of_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, size_t> known_of_ ABSL_GUARDED_BY(mutex_);
  // By address; without those that are full.
  absl::flat_hash_map<std::string, TokenBucket> arrivals_ ABSL_GUARDED_BY(mutex_);
  // By name, oldest first. May hold some that are gone.
  absl::flat_hash_map<std::string, std::vector<uint64_t>> known_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace macaw::wire
