#include "core/listen_tcp.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw {
namespace {

constexpr int kBacklog = 1024;

int PortOf(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&at)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&at)->sin_port);
}

bool HasIpv6() { return Fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)).open(); }

absl::Status Failed(int error) {
  const std::string why = absl::StrCat(": ", std::strerror(error));
  if (error == EADDRINUSE) return absl::AlreadyExistsError(why);
  if (error == EADDRNOTAVAIL) return absl::NotFoundError(why);
  return absl::FailedPreconditionError(why);
}

absl::StatusOr<Fd> ListenAt(const sockaddr* at, socklen_t size, bool only_ipv6) {
  Fd fd(socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.open()) return Failed(errno);
  const int on = 1, v6only = only_ipv6 ? 1 : 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (at->sa_family == AF_INET6)
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
  // Accepted connections inherit this option: no message waits for the next one.
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (bind(fd.get(), at, size) == 0 && listen(fd.get(), kBacklog) == 0) return fd;
  return Failed(errno);
}

absl::Status InUse(const std::string& text) {
  return absl::UnavailableError(absl::StrCat("port in use: another program listens on ", text,
                                             "; choose another port, or :0 for a free one"));
}

}  // namespace

absl::StatusOr<std::vector<Fd>> ListenTcp(const std::string& host, int& port) {
  const bool any = host == "::";
  const std::string text = absl::StrCat(host.empty() ? "127.0.0.1" : host, ":", port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string name = host.empty() ? "127.0.0.1" : any && !HasIpv6() ? "0.0.0.0" : host;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", text, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  std::vector<Fd> sockets;
  absl::Status refused;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    auto* const at = one->ai_family == AF_INET6
                         ? &reinterpret_cast<sockaddr_in6*>(one->ai_addr)->sin6_port
                         : &reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port;
    *at = htons(static_cast<uint16_t>(port));  // all addresses share one free port
    // A name's IPv4 address has a socket of its own.
    absl::StatusOr<Fd> fd = ListenAt(one->ai_addr, one->ai_addrlen, /*only_ipv6=*/!any);
    if (fd.ok()) {
      port = PortOf(fd->get());
      sockets.push_back(*std::move(fd));
    } else if (refused.ok() || absl::IsAlreadyExists(fd.status())) {
      refused = fd.status();
    }
  }
  // On a machine without IPv6 a name may still have an IPv6 address, which is skipped. A port that
  // is in use is an error.
  if (absl::IsAlreadyExists(refused)) return InUse(text);
  if (!sockets.empty()) return sockets;
  if (absl::IsNotFound(refused)) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", text,
                     ": this machine has no such address (yet); [::] stands for all that it has"));
  }
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", text, refused.message()));
}

std::string AddressOf(const sockaddr_storage& at) {
  char text[INET6_ADDRSTRLEN] = "";
  if (at.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(at).sin_addr, text, sizeof(text));
    return text;
  }
  if (at.ss_family != AF_INET6) return "";
  in6_addr address = reinterpret_cast<const sockaddr_in6&>(at).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof(text));
    return text;
  }
  if (IN6_IS_ADDR_LOOPBACK(&address)) return "::1";
  std::memset(&address.s6_addr[8], 0, 8);  // one customer has 2^64 addresses or more
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

std::string AddressOfPeer(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) return "";
  return AddressOf(at);
}

}  // namespace macaw
