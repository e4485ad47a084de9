#include "core/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/files.h"

namespace macaw {
namespace {

// The words of a small file; none where there is no such file.
std::vector<std::string> WordsOf(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) return {};
  return absl::StrSplit(*text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

// 0: there is no limit, or no such group.
double Ratio(absl::string_view quota, absl::string_view period) {
  double time = 0, of = 0;
  if (!absl::SimpleAtod(quota, &time) || !absl::SimpleAtod(period, &of)) return 0;
  return time > 0 && of > 0 ? time / of : 0;
}

double LimitOf(const std::string& group, bool unified) {
  if (unified) {
    const std::vector<std::string> words = WordsOf(group + "/cpu.max");  // "max 100000"
    return words.size() == 2 ? Ratio(words[0], words[1]) : 0;
  }
  const std::vector<std::string> quota = WordsOf(group + "/cpu.cfs_quota_us"),
                                 period = WordsOf(group + "/cpu.cfs_period_us");
  return quota.size() == 1 && period.size() == 1 ? Ratio(quota[0], period[0]) : 0;
}

// The smallest limit of `path` in the hierarchy at `mount`, and of all groups around it.
double SmallestLimit(const std::string& mount, std::string path, bool unified) {
  double smallest = 0;
  while (true) {
    const double limit = LimitOf(mount + path, unified);
    if (limit > 0 && (smallest == 0 || limit < smallest)) smallest = limit;
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return smallest;
    path.resize(slash);
  }
}

}  // namespace

double CoresOfCgroups(absl::string_view membership, const std::string& root) {
  double smallest = 0;
  const auto take = [&smallest](double limit) {
    if (limit > 0 && (smallest == 0 || limit < smallest)) smallest = limit;
  };
  for (const absl::string_view line : absl::StrSplit(membership, '\n', absl::SkipEmpty())) {
    // "0::/system.slice/job" of version 2, "4:cpu,cpuacct:/job" of version 1.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string path = fields[2] == "/" ? "" : fields[2];
    if (fields[1].empty()) {
      take(SmallestLimit(root, path, /*unified=*/true));
      take(SmallestLimit(root + "/unified", path, /*unified=*/true));  // beside version 1
      continue;
    }
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (std::ranges::find(controllers, "cpu") == controllers.end()) continue;
    for (const std::string& mount : {fields[1], std::string("cpu")})
      take(SmallestLimit(absl::StrCat(root, "/", mount), path, /*unified=*/false));
  }
  return smallest;
}

uint32_t AllowedCores() {
  // A machine may have more processors than a cpu_set_t.
  for (size_t processors = CPU_SETSIZE; processors <= size_t{1} << 20; processors *= 2) {
    std::vector<cpu_set_t> set((processors + CPU_SETSIZE - 1) / CPU_SETSIZE);
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, set.data()) == 0) {
      const int count = CPU_COUNT_S(bytes, set.data());
      if (count > 0) return static_cast<uint32_t>(count);
      break;
    }
    if (errno != EINVAL) break;
  }
  return std::thread::hardware_concurrency();
}

uint32_t UsableCores(uint32_t allowed, double quota) {
  uint32_t cores = std::max(1u, allowed);
  if (quota > 0 && quota < cores) cores = static_cast<uint32_t>(std::ceil(quota));
  return std::max(1u, cores);
}

uint32_t UsableCores() {
  static const uint32_t cores = UsableCores(
      AllowedCores(), CoresOfCgroups(ReadFile("/proc/self/cgroup").value_or(""), "/sys/fs/cgroup"));
  return cores;
}

}  // namespace macaw
