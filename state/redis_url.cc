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

// Removes "user:password@" from the front.
struct Login {
  absl::string_view user, password;
};
Login TakeLogin(absl::string_view& rest) {
  const size_t at = rest.rfind('@');
  if (at == absl::string_view::npos) return {};
  const absl::string_view login = rest.substr(0, at);
  rest.remove_prefix(at + 1);
  const size_t colon = login.find(':');
  if (colon == absl::string_view::npos) return {"", login};
  return {login.substr(0, colon), login.substr(colon + 1)};
}

// The three parts of "redis://user:password@host": before, in and after the login. Without "//"
// there is no login.
struct Split {
  absl::string_view scheme, rest;
  Login login;
};
Split SplitUrl(absl::string_view text) {
  Split split{.rest = text};
  if (const size_t slashes = text.find("//"); slashes != absl::string_view::npos) {
    split.scheme = text.substr(0, slashes + 2);
    split.rest = text.substr(slashes + 2);
    split.login = TakeLogin(split.rest);
  }
  return split;
}

}  // namespace

std::string RedisUrl::Text() const {
  return socket.empty() ? absl::StrCat("redis://", host, ":", port, "/", database)
                        : absl::StrCat("unix:", socket);
}

absl::StatusOr<RedisUrl> ParseRedisUrl(const std::string& text) {
  absl::string_view rest = text;
  RedisUrl url;
  const auto take_login = [&] {
    const Login login = TakeLogin(rest);
    url.user = std::string(login.user);
    url.password = std::string(login.password);
  };
  if (absl::ConsumePrefix(&rest, "unix:")) {
    if (absl::ConsumePrefix(&rest, "//")) take_login();
    if (rest.empty() || rest[0] != '/') return Refuse("names no absolute path");
    url.socket = std::string(rest);
    return url;
  }
  if (!absl::ConsumePrefix(&rest, "redis://")) return Refuse("begins with neither of the two");
  take_login();
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

std::string WithoutPassword(const std::string& text) {
  const Split split = SplitUrl(text);
  return absl::StrCat(split.scheme, split.login.user, split.login.user.empty() ? "" : ":@",
                      split.rest);
}

std::string PasswordIn(const std::string& text) {
  return std::string(SplitUrl(text).login.password);
}

}  // namespace macaw::state
