#include "core/settings/section.h"

namespace macaw::settings {

std::string Range::Text(absl::string_view noun) const {
  const bool below = std::isfinite(most), above = std::isfinite(least);
  if (above && below) {
    return absl::StrCat(noun, " in ", open_least ? "(" : "[", least, ", ", most,
                        open_most ? ")" : "]");
  }
  if (above) return absl::StrCat(noun, open_least ? " > " : " >= ", least);
  if (below) return absl::StrCat(noun, open_most ? " < " : " <= ", most);
  return std::string(noun);
}

std::string QuotedChoices(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " | ", [](std::string* out, const std::string& word) {
    absl::StrAppend(out, "\"", word, "\"");
  });
}

}  // namespace macaw::settings
