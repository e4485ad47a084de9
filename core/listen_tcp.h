#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/fd.h"

namespace macaw {

// Sockets that listen at `host` ("" is 127.0.0.1, "::" is every address of the machine, those of
// IPv4 too), one for each address of the name. They do not block. `port` 0 becomes a free one.
// kUnavailable when another program has the port, or the machine does not have the address: either
// may pass, as at boot. Errors name host and port.
absl::StatusOr<std::vector<Fd>> ListenTcp(const std::string& host, int& port);

// The address of the other end, without its port: for limits by address. All addresses of one IPv6
// network (/64) are the same. "": the connection is gone, or not of IP.
std::string AddressOfPeer(int fd);
std::string AddressOf(const sockaddr_storage& at);

}  // namespace macaw
