#include "proto/wire/address.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/fd.h"
#include "core/status.h"

namespace macaw::wire {
namespace {

constexpr absl::string_view kUnix = "unix:";

bool SomebodyListens(const std::string& path) {
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno == EAGAIN;  // a full backlog is a listener too
}

}  // namespace

bool Address::IsLoopback() const {
  if (is_unix || host.empty() || host == "localhost" || host == "::1") return true;
  // Numbers only: a name such as "127.example.org" may be any host.
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

std::string Address::Text() const {
  if (is_unix) return absl::StrCat(kUnix, path);
  const std::string name = host.empty() ? "127.0.0.1" : host;
  return absl::StrContains(name, ':') ? absl::StrCat("[", name, "]:", port)
                                      : absl::StrCat(name, ":", port);
}

std::string Address::Target() const {
  if (!is_unix) return Text();
  std::string escaped;
  for (const char c : path) {
    const bool plain =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("/._-~", c);
    absl::StrAppend(&escaped, plain ? std::string(1, c)
                                    : absl::StrFormat("%%%02X", static_cast<unsigned char>(c)));
  }
  return absl::StrCat(kUnix, escaped);
}

bool IsPrivate(const std::string& text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  return address.ok() && address->is_unix;
}

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  Address address;
  if (absl::StartsWith(text, kUnix)) {
    address.is_unix = true;
    address.path = text.substr(kUnix.size());
    if (address.path.empty()) {
      return absl::InvalidArgumentError(
          "listen address \"unix:\" names no path; write unix:/path/to/socket");
    }
    constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
    if (address.path.size() > kLongest || absl::StrContains(address.path, '\0')) {
      return absl::InvalidArgumentError(
          absl::StrCat("socket path ", address.path, " has ", address.path.size(),
                       " bytes, the system takes ", kLongest, "; choose a shorter folder"));
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &address.port) ||
      address.port < 0 || address.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address \"", text, "\" is neither unix:/path nor host:port with a port of 0 to 65535"));
  }
  address.host = text.substr(0, colon);
  if (address.host.size() >= 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  return address;
}

absl::Status PrepareListen(const Address& address) {
  if (!address.is_unix) return absl::OkStatus();
  struct stat info;
  if (lstat(address.path.c_str(), &info) != 0) {
    if (errno != ENOENT) {
      return absl::FailedPreconditionError(
          absl::StrCat("socket ", address.path, ": ", std::strerror(errno)));
    }
    const size_t slash = address.path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : address.path.substr(0, slash + 1);
    if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
      return absl::NotFoundError(
          absl::StrCat("socket ", address.path, ": there is no folder ", folder));
    }
    return absl::OkStatus();
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("socket ", address.path, ": a file that is no socket is in the way"));
  }
  if (SomebodyListens(address.path)) {
    return absl::AlreadyExistsError(absl::StrCat("address in use: another server listens on ",
                                                 address.Text(),
                                                 "; stop it or choose another path"));
  }
  if (unlink(address.path.c_str()) != 0 && errno != ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrCat("stale socket ", address.path, " cannot be removed: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace macaw::wire
