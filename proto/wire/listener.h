#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/logging.h"
#include "proto/wire/address.h"

namespace macaw::wire {

// Listens on an address and hands over each new connection, as long as this process has file
// descriptors to spare. gRPC's own listener accepts connections until no descriptor is left. The
// next checkpoint then cannot open its file, and the listener stops for good. This listener closes
// a new connection at once when only the reserve is left; the caller may come again. The log then
// says how many it has closed, once a minute.
class Listener {
 public:
  using Accept = std::function<void(int listening, Fd connection)>;

  // Binds `address` and fills in its port. `reserve`: descriptors that are kept for others.
  // A caller that connects before Start waits for it.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(Address& address, int reserve);
  ~Listener();  // stops, and removes the socket's file
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const Address& address() const { return address_; }  // with the real port

  // Takes connections, on a thread of its own. `accept` owns each of them. Call once.
  void Start(Accept accept);

 private:
  Listener() = default;
  void Loop();
  // Accepts and closes one connection when no descriptor is left at all. A connection that stayed
  // in the queue would keep the loop awake.
  void HangUp(int listening);
  void TellOfRefusal();

  Address address_;
  int reserve_ = 0;
  std::string socket_file_;
  std::vector<Fd> sockets_;  // one for each address of the name
  Fd wake_;                  // readable when the loop must end
  Fd spare_;                 // closed to free a descriptor in HangUp
  // Of the loop's thread.
  uint64_t refused_ = 0;  // connections, since the log told of them
  TimePoint told_{};
  const Logger log_{"wire"};
  Accept accept_;
  std::thread thread_;
};

// How many descriptors of this process connections must leave free for files.
int ReservedDescriptors();

}  // namespace macaw::wire
