#include "cli/config/groups_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cli/config/wrong_key.h"
#include "core/csv_text.h"
#include "core/files.h"
#include "core/status.h"
#include "core/utf8.h"

namespace macaw::cli {
namespace {

constexpr char kGroupsKey[] = "evaluation.groups";

// Appends the entries of a file; an error says what is wrong with it.
absl::Status AddGroupsOf(const std::string& file, const Place& place, Array& entries) {
  MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  MACAW_RETURN_IF_ERROR(CheckPlainText(bytes, file));
  CsvText rows(bytes, FindSeparator(bytes));
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":", rows.line(), ": ", why...));
  };
  if (!rows.Next())
    return absl::InvalidArgumentError(absl::StrCat(file,
                                                   " is empty: its first line names "
                                                   "columns, client and group among them"));
  if (!rows.status().ok()) return refuse(rows.status().message());
  const size_t width = rows.cells().size();
  const auto place_of = [&](absl::string_view column) {
    return static_cast<size_t>(std::ranges::find(rows.cells(), column) - rows.cells().begin());
  };
  const size_t client = place_of("client"), group = place_of("group");
  if (client == width || group == width)
    return refuse("there is no column \"", client == width ? "client" : "group",
                  "\"; the first line names the columns, client and group among them");
  while (rows.Next()) {
    if (!rows.status().ok()) return refuse(rows.status().message());
    if (rows.cells().size() != width)
      return refuse(rows.cells().size(), " cells, but the first line names ", width, " columns");
    if (rows.cells()[group].empty()) continue;
    if (absl::StrContains(rows.cells()[group], '='))
      return refuse("the group \"", EscapeToUtf8(rows.cells()[group]), "\" has a = in its name");
    if (rows.cells()[client].empty()) return refuse("column \"client\" is empty");
    entries.push_back({absl::StrCat(rows.cells()[group], "=", rows.cells()[client]), place});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<settings::Value> WithGroupsOfFiles(const settings::Value& groups,
                                                  const std::string& folder) {
  const Array* const items = groups.As<Array>();
  if (items == nullptr) return groups;  // the reader says what is expected
  Array entries;
  for (const Value& item : *items) {
    const std::string* const text = item.As<std::string>();
    if (text == nullptr || !absl::StartsWith(*text, "@")) {
      entries.push_back(item);
      continue;
    }
    const std::string file =
        (std::filesystem::path(folder) / text->substr(1)).lexically_normal().string();
    if (const absl::Status added = AddGroupsOf(file, groups.place, entries); !added.ok())
      return WrongKey(groups.place, kGroupsKey, "",
                      absl::StrCat(kGroupsKey, ": ", added.message()));
  }
  return settings::Value{std::move(entries), groups.place};
}

}  // namespace macaw::cli
