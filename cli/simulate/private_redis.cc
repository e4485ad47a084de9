#include "cli/simulate/private_redis.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/simulate/redis_files.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/logging.h"
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

absl::StatusOr<PrivateRedis> PrivateRedis::Start(const std::string& run_folder) {
  MACAW_ASSIGN_OR_RETURN(const std::string program, FindProgram("redis-server"));
  MACAW_ASSIGN_OR_RETURN(SocketFolder folder, SocketFolder::Make());
  const std::string data = absl::StrCat(run_folder, "/state");
  MACAW_RETURN_IF_ERROR(MakeDirectories(data));
  ChildSpec spec{.name = "redis-server", .log = absl::StrCat(run_folder, "/logs/redis.log")};
  spec.argv = {program, "--port", "0", "--unixsocket", folder.socket(), "--unixsocketperm", "700",
               "--dir", data, "--save", "", "--appendonly", "yes",
               // Not "everysec": during such a sync Redis confirms writes that it has not yet
               // handed to the kernel, and a kill would lose them.
               "--appendfsync", "no", "--maxmemory-policy", "noeviction"};
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.open()) return absl::ErrnoToStatus(errno, "cannot make a timer");
  PrivateRedis redis(std::move(folder), data, std::move(spec), std::move(timer));
  MACAW_RETURN_IF_ERROR(redis.Spawn());
  return redis;
}

PrivateRedis::Data::~Data() {
  if (!folder.empty()) SweepRedisFiles(folder);
}

absl::Status PrivateRedis::Spawn() {
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> cut, MendRedisFiles(data_.folder));
  for (const std::string& line : cut) Logger("state").Warning(line);
  MACAW_ASSIGN_OR_RETURN(child_, Child::Spawn(spec_));
  return absl::OkStatus();
}

absl::Status PrivateRedis::Attend(const std::function<void(const std::string&)>& say) {
  if (!child_.has_value()) {
    uint64_t times = 0;
    if (::read(timer_.get(), &times, sizeof(times)) < 0) return absl::OkStatus();  // not due yet
    return Spawn();
  }
  const Exit exit = child_->Reap();
  child_.reset();
  const std::optional<Duration> wait = policy_.OnDeath(SteadyClock().Now());
  if (!wait.has_value()) {
    return absl::UnavailableError(
        absl::StrCat("the run's redis-server died ", RestartPolicy::kLimit + 1,
                     " times without a round being finished; ", exit.Text(), " (", spec_.log, ")"));
  }
  say(absl::StrCat("redis-server died (", exit.Text(), "); starting it again on the same data"));
  const auto ns = std::max<int64_t>(std::chrono::nanoseconds(*wait).count(), 1);  // 0 disarms it
  const itimerspec at{.it_interval = {},
                      .it_value = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}};
  if (::timerfd_settime(timer_.get(), 0, &at, nullptr) != 0)
    return absl::ErrnoToStatus(errno, "cannot set a timer");
  return absl::OkStatus();
}

void PrivateRedis::OnProgress() { policy_.OnProgress(SteadyClock().Now()); }

}  // namespace macaw::cli
