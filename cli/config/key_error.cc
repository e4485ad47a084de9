#include "cli/config/key_error.h"

#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "cli/config/config.h"

namespace macaw::cli {
namespace {

constexpr absl::string_view kPlace = "macaw/place", kKey = "macaw/key", kMeant = "macaw/meant";

void Keep(absl::Status& status, absl::string_view name, const std::string& text) {
  if (!text.empty()) status.SetPayload(name, absl::Cord(text));
}

std::string Kept(const absl::Status& status, absl::string_view name) {
  const auto text = status.GetPayload(name);
  return text.has_value() ? std::string(*text) : "";
}

bool IsOfKey(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Of AllFields(), or of an algorithm ("algorithm.fedprox.mu").
bool IsKey(absl::string_view word) {
  static const auto* const keys = [] {
    auto* all = new std::set<std::string, std::less<>>;
    for (const Field& field : AllFields()) all->insert(field.key);
    return all;
  }();
  return keys->contains(word) || absl::StartsWith(word, "algorithm.");
}

std::string FirstKeyIn(absl::string_view text) {
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    for (end = begin; end < text.size() && (IsOfKey(text[end]) || text[end] == '.');) ++end;
    absl::string_view word = text.substr(begin, end - begin);
    while (!word.empty() && word.back() == '.') word.remove_suffix(1);  // the end of a sentence
    if (IsKey(word)) return std::string(word);
  }
  return "";
}

}  // namespace

absl::Status WithKeyError(absl::Status status, const KeyError& what) {
  Keep(status, kPlace, what.place);
  Keep(status, kKey, what.key);
  Keep(status, kMeant, what.meant);
  return status;
}

KeyError KeyErrorOf(const absl::Status& status) {
  KeyError what{
      .place = Kept(status, kPlace), .key = Kept(status, kKey), .meant = Kept(status, kMeant)};
  absl::string_view message = status.message();
  if (absl::StartsWith(message, what.place)) message.remove_prefix(what.place.size());
  if (what.key.empty()) what.key = FirstKeyIn(message);
  return what;
}

}  // namespace macaw::cli
