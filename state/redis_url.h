#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace macaw::state {

// The address of a Redis: "unix:/path", "unix://:password@/path", "redis://host:port/db",
// "redis://:password@host:port/db" (port 6379 and db 0 unless given). "user:password@" is accepted,
// too; without a colon it is a password.
struct RedisUrl {
  std::string socket;  // a Unix socket's path; "": TCP
  std::string host;
  uint16_t port = 6379;
  std::string user;  // "": Redis' default user
  std::string password;
  uint32_t database = 0;

  std::string Text() const;  // without the password
};

// Errors never repeat a password.
absl::StatusOr<RedisUrl> ParseRedisUrl(const std::string& text);

// The same URL without its password, for files and people.
std::string WithoutPassword(const std::string& text);
// The password in it, or "".
std::string PasswordIn(const std::string& text);

}  // namespace macaw::state
