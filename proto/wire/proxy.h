#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/wire/address.h"

namespace macaw::wire {

// An HTTP proxy on the way to a server.
struct Proxy {
  std::string variable;  // of the environment, that names it: "https_proxy"
  std::string place;     // host:port, without a name and a password
  std::string server;    // the host behind it
};

// The proxy through which this process reaches the address: the first of grpc_proxy, https_proxy
// and http_proxy, unless no_grpc_proxy (or no_proxy) lists the host or an end of its name. Nothing
// for a Unix socket, this machine, and an address of a private network (10/8, 172.16/12,
// 192.168/16, link-local, fc00::/7): no proxy stands before these.
std::optional<Proxy> ProxyTo(const Address& address);

// An error of a call that did not reach the server, with the proxy's name and what to do. Other
// errors, and those without a proxy, stay as they are.
absl::Status NameProxy(absl::Status status, const std::optional<Proxy>& proxy);

}  // namespace macaw::wire
