#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Where a server listens, as people write it: "unix:/path/to/socket" or "host:port".
namespace macaw::wire {

struct Address {
  bool is_unix = false;
  std::string path;  // unix
  std::string host;  // TCP; "" was written as ":port" and means 127.0.0.1
  int port = 0;      // TCP; 0: any free one

  bool IsLoopback() const;     // nothing outside this machine can reach it
  std::string Target() const;  // as gRPC takes it, special characters escaped
  std::string Text() const;    // as a person writes it
};

// Refuses by name: an empty or too long socket path (the system takes 107 bytes), a port that is
// none.
absl::StatusOr<Address> ParseAddress(const std::string& text);

// Whether `text` is a Unix socket: only this user's processes on this machine are at its other end,
// so memory is shared over it, and blobs that come over it are not hashed a second time.
bool IsPrivate(const std::string& text);

// Makes way for a listener on a Unix socket: removes its file when nobody listens there.
// kAlreadyExists when somebody does, or when a file that is no socket is in the way; kNotFound when
// the folder is missing.
absl::Status PrepareListen(const Address& address);

}  // namespace macaw::wire
