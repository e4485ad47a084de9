#include "cli/process/limits.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

// A server with two workers has about 40 files open, and two more for each further worker.
constexpr rlim_t kNeeded = 64, kPlenty = 65536;

}  // namespace

absl::Status EnsureOpenFiles() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kPlenty) return absl::OkStatus();
  rlimit raised = limit;
  raised.rlim_cur = std::min(limit.rlim_max, kPlenty);
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur >= kNeeded) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a process may have ", limit.rlim_cur,
                                                   " files open here, and a run needs ", kNeeded,
                                                   ": raise the limit (ulimit -n)"));
}

}  // namespace macaw::cli
