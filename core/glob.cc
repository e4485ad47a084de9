#include "core/glob.h"

namespace macaw {

bool MatchesGlob(absl::string_view glob, absl::string_view name) {
  if (glob.empty()) return name.empty();
  if (glob[0] == '*') {
    for (size_t skip = 0; skip <= name.size(); ++skip) {
      if (MatchesGlob(glob.substr(1), name.substr(skip))) return true;
    }
    return false;
  }
  return !name.empty() && (glob[0] == '?' || glob[0] == name[0]) &&
         MatchesGlob(glob.substr(1), name.substr(1));
}

bool MatchesAny(std::span<const std::string> globs, absl::string_view name) {
  bool chosen = false;
  for (const absl::string_view glob : globs) {
    const bool out = !glob.empty() && glob[0] == '!';
    if (MatchesGlob(out ? glob.substr(1) : glob, name)) chosen = !out;
  }
  return chosen;
}

}  // namespace macaw
