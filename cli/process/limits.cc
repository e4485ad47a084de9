#include "cli/process/limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

// A server has about 40 files open besides its connections. Its listener keeps others free for
// files (proto/wire/listener.h).
constexpr rlim_t kOwn = 48, kPlenty = 65536;
constexpr rlim_t kMostReserved = 256;

rlim_t WithoutReserve(rlim_t limit) { return limit - std::min(kMostReserved, limit / 4); }

}  // namespace

absl::Status EnsureOpenFiles(uint64_t connections) {
  const rlim_t needed = kOwn + connections;
  const rlim_t wanted = std::max(kPlenty, needed + kMostReserved);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return absl::OkStatus();
  rlimit raised = limit;
  raised.rlim_cur = std::min(limit.rlim_max, wanted);
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (WithoutReserve(limit.rlim_cur) >= needed) return absl::OkStatus();
  const std::string whose =
      connections == 0 ? "a run" : absl::StrCat("a run with ", connections, " workers");
  return absl::ResourceExhaustedError(
      absl::StrCat("a process may have ", limit.rlim_cur, " files open here, and ", whose,
                   " needs ", needed + std::min(kMostReserved, (needed + 2) / 3),
                   ": raise the limit (ulimit -n, or LimitNOFILE= of the systemd unit)"));
}

}  // namespace macaw::cli
