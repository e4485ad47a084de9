#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Where a server listens, as the user writes it: "unix:/path/to/socket" or "host:port".
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

// Refuses an empty or too long socket path (the system's limit is 107 bytes) and an invalid port;
// the error says which.
absl::StatusOr<Address> ParseAddress(const std::string& text);

// Whether `text` is a Unix socket. Only processes of this user on this machine can connect to one.
// Both ends may therefore share memory, and blobs that arrive over it are not hashed again.
bool IsPrivate(const std::string& text);

// Prepares to listen on a Unix socket: removes a socket file on which nobody listens.
// kAlreadyExists when somebody listens there, or when the file is not a socket. kNotFound when the
// folder is missing.
absl::Status PrepareListen(const Address& address);

}  // namespace macaw::wire
