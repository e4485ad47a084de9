#include "core/memory.h"

#include <malloc.h>

#include <atomic>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw {

namespace {

absl::StatusOr<uint64_t> PssIn(const std::string& file) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.substr(0, 4) != "Pss:") continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
    uint64_t kilobytes = 0;
    if (words.size() >= 2 && absl::SimpleAtoi(words[1], &kilobytes)) return kilobytes * 1024;
  }
  return absl::NotFoundError(absl::StrCat(file, " has no Pss line"));
}

std::atomic<bool> keeps_all = false;

}  // namespace

absl::StatusOr<uint64_t> ProportionalSetSize() { return PssIn("/proc/self/smaps_rollup"); }

absl::StatusOr<uint64_t> ProportionalSetSize(pid_t process) {
  return PssIn(absl::StrCat("/proc/", process, "/smaps_rollup"));
}

void KeepFreedMemory() {
  keeps_all = true;
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
}

void KeepFreedMegabytes() {
  if (keeps_all) return;
  [[maybe_unused]] static const bool kept =
      mallopt(M_MMAP_THRESHOLD, 4 << 20) == 1 && mallopt(M_TRIM_THRESHOLD, 4 << 20) == 1;
}

}  // namespace macaw
