#include "cli/simulate/private_redis.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    std::string candidate = absl::StrCat(folder, "/", name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("state.url = \"spawn\": ", name,
                                          " is not on PATH; install it (./dev setup does) or name "
                                          "a Redis that runs"));
}

}  // namespace

absl::StatusOr<PrivateRedis> PrivateRedis::Start(const StateSection& state,
                                                 const std::string& run_folder) {
  MACAW_ASSIGN_OR_RETURN(const std::string program, FindProgram("redis-server"));
  MACAW_ASSIGN_OR_RETURN(SocketFolder folder, SocketFolder::Make());
  const std::string data = absl::StrCat(run_folder, "/state");
  MACAW_RETURN_IF_ERROR(MakeDirectories(data));
  ChildSpec spec{.name = "redis-server", .log = absl::StrCat(run_folder, "/logs/redis.log")};
  spec.argv = {program,
               "--port",
               "0",
               "--unixsocket",
               folder.socket(),
               "--unixsocketperm",
               "700",
               "--dir",
               data,
               "--save",
               "",
               "--appendonly",
               "yes",
               "--appendfsync",
               state.sync ? "everysec" : "no",
               "--maxmemory-policy",
               "noeviction"};
  MACAW_ASSIGN_OR_RETURN(Child child, Child::Spawn(spec));
  return PrivateRedis(std::move(folder), std::move(child));
}

}  // namespace macaw::cli
