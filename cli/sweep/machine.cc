#include "cli/sweep/machine.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/cores.h"
#include "core/files.h"
#include "core/memory.h"

namespace macaw::cli {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The number in a file of one number; `otherwise` where there is none.
uint64_t NumberIn(const std::string& file, uint64_t otherwise) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  uint64_t number = 0;
  return text.ok() && absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &number) ? number
                                                                                   : otherwise;
}

uint64_t AvailableHere() {
  const absl::StatusOr<std::string> text = ReadFile("/proc/meminfo");
  if (!text.ok()) return kUnlimited;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (!absl::StartsWith(line, "MemAvailable:")) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    uint64_t kilobytes = 0;
    if (words.size() >= 2 && absl::SimpleAtoi(words[1], &kilobytes)) return kilobytes * 1024;
  }
  return kUnlimited;
}

}  // namespace

uint32_t CoresHere() { return UsableCores(); }

uint64_t FreeMemory() {
  const uint64_t limit = NumberIn("/sys/fs/cgroup/memory.max", kUnlimited);
  const uint64_t used = NumberIn("/sys/fs/cgroup/memory.current", 0);
  return std::min(AvailableHere(), limit == kUnlimited ? limit : limit - std::min(limit, used));
}

uint64_t MemoryOfTree(pid_t process) {
  uint64_t bytes = ProportionalSetSize(process).value_or(0);
  std::error_code error;
  const std::string tasks = absl::StrCat("/proc/", process, "/task");
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    const absl::StatusOr<std::string> children = ReadFile(task.path().string() + "/children");
    if (!children.ok()) continue;
    for (const absl::string_view word : absl::StrSplit(*children, ' ', absl::SkipWhitespace())) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) bytes += MemoryOfTree(child);
    }
  }
  return bytes;
}

}  // namespace macaw::cli
