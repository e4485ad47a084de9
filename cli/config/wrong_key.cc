#include "cli/config/wrong_key.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "cli/config/key_error.h"
#include "cli/config/suggest.h"
#include "core/spelling.h"
#include "core/utf8.h"

namespace macaw::cli {

absl::Status At(const Place& place, absl::string_view message) {
  return WithKeyError(
      absl::InvalidArgumentError(absl::StrCat(place.text, place.text.empty() ? "" : ": ", message)),
      {.place = place.text});
}

absl::Status WrongKey(const Place& place, const std::string& key, const std::string& meant,
                      absl::string_view message) {
  return WithKeyError(At(place, message), {.key = key, .meant = meant});
}

std::string DidYouMean(absl::string_view meant) {
  return meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?");
}

absl::Status UnknownKey(const std::vector<Field>& fields, const std::string& path,
                        const Value& value) {
  for (const Field& field : fields) {
    if (path.starts_with(field.key + ".")) {
      return WrongKey(value.place, path, field.key,
                      absl::StrCat("unknown key ", path, ": ", field.key,
                                   " is one value and not a table"));
    }
  }
  std::vector<std::string> keys;
  std::set<std::string> tables;
  for (const Field& field : fields) {
    keys.push_back(field.key);
    for (size_t dot = field.key.find('.'); dot != std::string::npos;
         dot = field.key.find('.', dot + 1)) {
      tables.insert(field.key.substr(0, dot));
    }
  }
  const std::vector<std::string> table_list(tables.begin(), tables.end());
  if (value.As<Table>() != nullptr) {
    const std::string meant = NearestWord(path, table_list);
    return WrongKey(value.place, path, meant,
                    absl::StrCat("unknown table [", path, "]",
                                 DidYouMean(meant.empty() ? "" : absl::StrCat("[", meant, "]"))));
  }
  keys.insert(keys.end(), table_list.begin(), table_list.end());
  const std::string meant = NearestKey(path, keys);
  return WrongKey(value.place, path, meant, absl::StrCat("unknown key ", path, DidYouMean(meant)));
}

std::string WordMeant(const Field& field, const Value& value) {
  if (const std::string* const word = value.As<std::string>())
    return NearestWord(*word, field.choices);
  const Array* const list = value.As<Array>();
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::string* const word = (*list)[i].As<std::string>();
    if (word != nullptr && !settings::Contains(field.choices, *word))
      return NearestWord(*word, field.choices);
  }
  return "";
}

std::string NotUtf8In(const Value& value) {
  if (const std::string* const word = value.As<std::string>()) return IsUtf8(*word) ? "" : *word;
  const Array* const list = value.As<Array>();
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    if (std::string found = NotUtf8In((*list)[i]); !found.empty()) return found;
  }
  return "";
}

}  // namespace macaw::cli
