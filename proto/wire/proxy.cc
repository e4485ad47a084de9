#include "proto/wire/proxy.h"

#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsPrivateIpv4(uint32_t address) {
  struct Net {
    uint32_t base, bits;
  };
  constexpr std::array<Net, 5> kNets = {{{0x0A000000, 8},    // 10.0.0.0
                                         {0xAC100000, 12},   // 172.16.0.0
                                         {0xC0A80000, 16},   // 192.168.0.0
                                         {0xA9FE0000, 16},   // 169.254.0.0
                                         {0x7F000000, 8}}};  // 127.0.0.0
  for (const Net& net : kNets) {
    if ((address ^ net.base) >> (32 - net.bits) == 0) return true;
  }
  return false;
}

// Numbers only: a name may be any host.
bool IsOfPrivateNetwork(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return IsPrivateIpv4(ntohl(v4.s_addr));
  in6_addr v6{};
  const std::string number = host.substr(0, host.find('%'));  // without the interface
  if (inet_pton(AF_INET6, number.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    const uint8_t* const b = v6.s6_addr + 12;
    return IsPrivateIpv4(uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3]);
  }
  return (v6.s6_addr[0] & 0xFE) == 0xFC || IN6_IS_ADDR_LINKLOCAL(&v6) || IN6_IS_ADDR_LOOPBACK(&v6);
}

// Whether no_proxy lists the host: "*", its name, or an end of it ("example.org").
bool Excluded(const std::string& host) {
  std::string list = Variable("no_grpc_proxy");
  if (list.empty()) list = Variable("no_proxy");
  for (absl::string_view entry : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    entry = absl::StripAsciiWhitespace(entry);
    if (entry == "*" || (!entry.empty() && absl::EndsWithIgnoreCase(host, entry))) return true;
  }
  return false;
}

}  // namespace

std::optional<Proxy> ProxyTo(const Address& address) {
  if (address.IsLoopback() || IsOfPrivateNetwork(address.host) || Excluded(address.host))
    return std::nullopt;
  for (const char* const name : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    const std::string url = Variable(name);
    if (url.empty()) continue;
    absl::string_view place = url;
    if (!absl::ConsumePrefix(&place, "http://")) return std::nullopt;  // gRPC takes no other
    place = place.substr(0, place.find('/'));
    const size_t credentials = place.rfind('@');
    if (credentials != absl::string_view::npos) place.remove_prefix(credentials + 1);
    return Proxy{.variable = name, .place = std::string(place), .server = address.host};
  }
  return std::nullopt;
}

absl::Status NameProxy(absl::Status status, const std::optional<Proxy>& proxy) {
  if (!proxy.has_value()) return status;
  const bool of_the_way =
      (absl::IsUnavailable(status) && ReasonOf(status) == v1::Refusal::REASON_UNSPECIFIED) ||
      absl::IsDeadlineExceeded(status);
  if (!of_the_way) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("no way through the proxy ", proxy->place, " (", proxy->variable,
                   " in the environment) to ", proxy->server, ": ", status.message(),
                   ". Is the proxy running, and does it let you through? To go without it, list ",
                   proxy->server, " in no_proxy"));
}

}  // namespace macaw::wire
