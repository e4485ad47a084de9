// Names that --rename gives to columns and tensors: whether they are there.
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/diff/trace.h"
#include "core/spelling.h"

namespace macaw::cli {
namespace {

// The names that a trace's columns and tensors have got; those of a run stay.
std::set<std::string> NewNames(const Trace& trace, const Renames& renames) {
  std::set<std::string> names;
  for (const std::string& name : trace.names) {
    const auto found = trace.is_run ? renames.end() : renames.find(name);
    names.insert(found == renames.end() ? name : found->second);
  }
  return names;
}

absl::Status NoSuchName(const std::string& who, const std::string& name,
                        const std::set<std::string>& names) {
  const std::string meant = NearestWord(name, {names.begin(), names.end()});
  return absl::InvalidArgumentError(
      absl::StrCat(who, " \"", name, "\"", meant.empty() ? "." : "; did you mean " + meant + "?",
                   " There are ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::Status CheckRenames(const Renames& renames, const Trace& first, const Trace& second) {
  for (const auto& [theirs, ours] : renames) {
    const std::string flag = absl::StrCat("--rename ", theirs, "=", ours, ": ");
    if (first.is_run && second.is_run)
      return absl::InvalidArgumentError(flag + "both are runs of Macaw, whose names stay");
    bool is_there = false;
    std::set<std::string> all;
    for (const auto& [trace, other] : {std::pair(&first, &second), std::pair(&second, &first)}) {
      if (trace->is_run) continue;
      all.insert(trace->names.begin(), trace->names.end());
      if (!trace->names.contains(theirs)) continue;
      is_there = true;
      if (trace->names.contains(ours) && !renames.contains(ours)) {
        return absl::InvalidArgumentError(
            absl::StrCat(flag, trace->path, " has \"", ours, "\" already"));
      }
      const std::set<std::string> known = NewNames(*other, renames);
      if (ours != kRoundColumn && !known.contains(ours))
        return NoSuchName(absl::StrCat(flag, other->path, " has no"), ours, known);
    }
    if (is_there) continue;
    const std::string who =
        first.is_run    ? absl::StrCat(second.path, " has no")
        : second.is_run ? absl::StrCat(first.path, " has no")
                        : absl::StrCat("neither ", first.path, " nor ", second.path, " has");
    return NoSuchName(flag + who, theirs, all);
  }
  return absl::OkStatus();
}

}  // namespace macaw::cli
