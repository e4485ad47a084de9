#include "server/journal/format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace macaw::server {
namespace {

// By Kind, up to kAttempt.
constexpr std::array<absl::string_view, 6> kWords = {"number", "real",  "text",
                                                     "digest", "fence", "attempt"};
constexpr int kDeepest = 16;  // messages and lists within each other

absl::string_view TakeWord(absl::string_view& text) {
  const auto end = std::ranges::find_if_not(
      text, [](char letter) { return absl::ascii_isalnum(letter) || letter == '_'; });
  const absl::string_view word = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

bool Take(absl::string_view& text, Format& format, int depth) {
  if (depth > kDeepest) return false;
  if (absl::ConsumePrefix(&text, "[")) {
    format.kind = Format::Kind::kList;
    return Take(text, format.parts.emplace_back(), depth + 1) && absl::ConsumePrefix(&text, "]");
  }
  if (absl::ConsumePrefix(&text, "{")) {
    format.kind = Format::Kind::kMessage;
    while (!absl::ConsumePrefix(&text, "}")) {
      if (!format.names.empty() && !absl::ConsumePrefix(&text, ",")) return false;
      const absl::string_view name = TakeWord(text);
      if (name.empty() || !absl::ConsumePrefix(&text, ":")) return false;
      format.names.emplace_back(name);
      if (!Take(text, format.parts.emplace_back(), depth + 1)) return false;
    }
    return true;
  }
  const auto word = std::ranges::find(kWords, TakeWord(text));
  format.kind = static_cast<Format::Kind>(word - kWords.begin());
  return word != kWords.end();
}

}  // namespace

std::string TextOf(const Format& format) {
  if (format.kind == Format::Kind::kList)
    return absl::StrCat("[", TextOf(format.parts.front()), "]");
  if (format.kind != Format::Kind::kMessage)
    return std::string(kWords[static_cast<size_t>(format.kind)]);
  std::string text = "{";
  for (size_t i = 0; i < format.names.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", format.names[i], ":", TextOf(format.parts[i]));
  }
  return text + "}";
}

std::optional<Format> ParseFormat(absl::string_view text) {
  Format format;
  if (!Take(text, format, 0) || !text.empty()) return std::nullopt;
  return format;
}

}  // namespace macaw::server
