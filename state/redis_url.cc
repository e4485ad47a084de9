#include "state/redis_url.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace macaw::state {
namespace {

absl::Status Refuse(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "state.url ", why, "; expected unix:/path or redis://[:password@]host[:port][/db]"));
}

// Takes "user:password@" off the front.
std::string TakePassword(absl::string_view& rest) {
  const size_t at = rest.rfind('@');
  if (at == absl::string_view::npos) return "";
  const absl::string_view login = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  const size_t colon = login.find(':');
  return std::string(colon == absl::string_view::npos ? login : login.substr(colon + 1));
}

}  // namespace

std::string RedisUrl::Text() const {
  return socket.empty() ? absl::StrCat("redis://", host, ":", port, "/", database)
                        : absl::StrCat("unix:", socket);
}

absl::StatusOr<RedisUrl> ParseRedisUrl(const std::string& text) {
  absl::string_view rest = text;
  RedisUrl url;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (absl::ConsumePrefix(&rest, "//")) url.password = TakePassword(rest);
    if (rest.empty() || rest[0] != '/') return Refuse("names no absolute path");
    url.socket = std::string(rest);
    return url;
  }
  if (!absl::ConsumePrefix(&rest, "redis://")) return Refuse("begins with neither of the two");
  url.password = TakePassword(rest);
  if (const size_t slash = rest.find('/'); slash != absl::string_view::npos) {
    const absl::string_view database = rest.substr(slash + 1);
    if (!database.empty() && !absl::SimpleAtoi(database, &url.database))
      return Refuse("has a database that is no number");
    rest = rest.substr(0, slash);
  }
  if (const size_t colon = rest.rfind(':'); colon != absl::string_view::npos) {
    uint32_t port = 0;
    if (!absl::SimpleAtoi(rest.substr(colon + 1), &port) || port == 0 || port > 65535)
      return Refuse("has a port that is none");
    url.port = static_cast<uint16_t>(port);
    rest = rest.substr(0, colon);
  }
  if (rest.empty()) return Refuse("names no host");
  url.host = std::string(rest);
  return url;
}

}  // namespace macaw::state
