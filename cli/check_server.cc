#include "cli/check_server.h"

#include <netdb.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/process/callers.h"
#include "core/status.h"
#include "identity/node_files.h"
#include "proto/wire/address.h"
#include "proto/wire/proxy.h"
#include "proto/wire/remote.h"

namespace macaw::cli {
namespace {

void Line(absl::string_view what, absl::string_view text) {
  std::cout << absl::StrFormat("%-12s %s", what, text) << std::endl;
}

absl::Status CheckName(const wire::Address& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("the name \"", address.host, "\" has no address (",
                                            ::gai_strerror(error),
                                            "): check its spelling, DNS and /etc/hosts"));
  }
  std::string list;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST] = "";
    ::getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
    absl::StrAppend(&list, list.empty() ? "" : ", ", text);
  }
  ::freeaddrinfo(found);
  Line("name", absl::StrCat(address.host, " is ", list));
  return absl::OkStatus();
}

// What an answer of the server, or its lack, means.
absl::Status ExplainHello(const wire::Address& address, const absl::Status& status) {
  const std::string why(status.message());
  // What does not answer may be the proxy, and not the server behind it.
  const bool unreachable = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (unreachable && wire::ProxyTo(address).has_value()) return absl::UnavailableError(why);
  if (absl::IsUnimplemented(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat(address.Text(),
                     " speaks gRPC, but is no server for workers: is it the operators' address "
                     "(server.admin)? Workers dial server.listen"));
  }
  if (absl::IsPermissionDenied(status))
    return absl::PermissionDeniedError(absl::StrCat("the server answers, and refuses: ", why));
  if (absl::IsFailedPrecondition(status))
    return absl::FailedPreconditionError(
        absl::StrCat("the server answers, and speaks another version: ", why,
                     "; install the same version of Macaw on both"));
  if (absl::StrContains(why, "onnection refused"))
    return absl::UnavailableError(absl::StrCat("nothing listens at ", address.Text(),
                                               ": is the server running, and is the port right?"));
  if (absl::StrContains(why, "imed out") || absl::IsDeadlineExceeded(status))
    return absl::UnavailableError(
        absl::StrCat(address.Text(),
                     " does not answer: a firewall may drop the packets, or something else than "
                     "a server of Macaw listens there"));
  if (absl::StrContains(why, "o such file"))
    return absl::NotFoundError(absl::StrCat(address.path, " is missing: no server listens there"));
  return absl::UnavailableError(
      absl::StrCat(address.Text(), " gave no answer of a server of Macaw: ", why,
                   "; a server with certificates answers nodes that show theirs (--identity)"));
}

}  // namespace

absl::Status CheckServer(const std::string& server, const std::string& identity) {
  MACAW_ASSIGN_OR_RETURN(const wire::Address address, wire::ParseAddress(server));
  if (const std::optional<wire::Proxy> proxy = wire::ProxyTo(address); proxy.has_value()) {
    // The proxy looks up the name.
    Line("proxy", absl::StrCat(proxy->place, " (", proxy->variable, ")"));
  } else if (!address.is_unix && !address.host.empty()) {
    MACAW_RETURN_IF_ERROR(CheckName(address));
  }
  const char* token = std::getenv(kTokenVariable);
  wire::ClientOptions options{
      .server = server, .call_timeout = FromSeconds(5), .token = token != nullptr ? token : ""};
  if (!identity.empty()) options.identity = identity::IdentityFiles::In(identity);
  MACAW_ASSIGN_OR_RETURN(const auto link, wire::Dial(options));
  const absl::StatusOr<fleet::HelloReply> hello = link->Hello({.program = "macaw-doctor"});
  if (!hello.ok()) return ExplainHello(address, hello.status());
  Line("port", absl::StrCat(address.Text(), " answers"));
  Line("server", absl::StrCat(hello->program, ", protocol ", hello->major, ".", hello->minor));
  if (hello->run.has_value()) {
    Line("run", absl::StrCat(hello->run->name, ", ", hello->run->rounds, " rounds of ",
                             hello->run->algorithm.name));
  }
  return absl::OkStatus();
}

}  // namespace macaw::cli
