#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/fd.h"
#include "proto/wire/address.h"

namespace macaw::wire {

// Listens on an address and hands each new connection on, as long as this process has file
// descriptors to spare. gRPC's own listener takes connections until none is left; the next
// checkpoint then cannot open its file, and the listener stops for good. Whoever comes when only
// the reserve is left is hung up on, and may come again.
class Listener {
 public:
  using Accept = std::function<void(int listening, Fd connection)>;

  // Binds `address` and fills in its port. `reserve`: descriptors that are kept for others.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(Address& address, int reserve);
  ~Listener();  // stops, and removes the socket's file
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // From here on, on a thread of its own; `accept` owns the connection. Once.
  void Start(Accept accept);

 private:
  Listener() = default;
  void Loop();
  // When there is no descriptor at all: a caller that stays in line would keep the loop awake.
  void HangUp(int listening);

  int reserve_ = 0;
  std::string socket_file_;
  std::vector<Fd> sockets_;  // one for each address of the name
  Fd wake_;                  // readable when it is over
  Fd spare_;                 // makes way for a connection that is to be hung up on
  Accept accept_;
  std::thread thread_;
};

// Of the descriptors that this process may have, those that connections leave to files.
int ReservedDescriptors();

}  // namespace macaw::wire
