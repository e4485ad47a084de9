#include "data/csv_columns.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/source_file.h"
#include "data/text.h"

namespace macaw::data {
namespace {

// Whether the name of a column suggests that it holds the client: "user", "Client ID", "device_id".
bool NamesAClient(absl::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (absl::ascii_isalnum(c)) letters += absl::ascii_tolower(c);
  }
  for (const char* word : {"client", "user", "device", "writer", "speaker", "subject", "patient",
                           "participant", "customer", "owner", "hospital"}) {
    for (const char* ending : {"", "id", "name", "no", "number"}) {
      if (letters == absl::StrCat(word, ending)) return true;
    }
  }
  return letters == "uid" || letters == "pid";
}

}  // namespace

absl::StatusOr<CsvColumns> CsvColumns::Of(const std::vector<absl::string_view>& cells, bool header,
                                          const DataOptions& options) {
  CsvColumns columns;
  columns.roles_.assign(cells.size(), ColumnRole::kFeature);
  for (const absl::string_view cell : cells) {
    if (header) columns.names_.emplace_back(cell);
  }
  MACAW_RETURN_IF_ERROR(columns.Assign(options));
  for (size_t i = 0; i < columns.names_.size(); ++i) {
    if (columns.roles_[i] == ColumnRole::kDropped || IsUtf8(columns.names_[i])) continue;
    return RefuseNotUtf8(absl::StrCat("the name of column ", i), columns.names_[i], options.path);
  }
  return columns;
}

std::vector<std::string> CsvColumns::FeatureNames() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (roles_[i] == ColumnRole::kFeature) names.push_back(names_[i]);
  }
  return names;
}

JudgedColumns CsvColumns::judged() const {
  JudgedColumns judged;
  for (const ColumnRole role : roles_) judged.is_feature.push_back(role == ColumnRole::kFeature);
  judged.label =
      static_cast<size_t>(std::ranges::find(roles_, ColumnRole::kLabel) - roles_.begin());
  return judged;
}

std::string CsvColumns::Text(size_t column) const {
  return names_.empty() ? absl::StrCat("column ", column)
                        : absl::StrCat("column ", Quoted(names_[column]));
}

absl::Status CsvColumns::Assign(const DataOptions& options) {
  for (const std::string& column : options.drop_columns) {
    MACAW_RETURN_IF_ERROR(Give(column, ColumnRole::kDropped, "data.drop_columns"));
  }
  const bool guess = options.client_column.empty();
  if (!guess && options.client_column != kNoColumn) {
    MACAW_RETURN_IF_ERROR(Give(options.client_column, ColumnRole::kClient, "data.client_column"));
  }
  if (!options.label_column.empty()) {
    MACAW_RETURN_IF_ERROR(Give(options.label_column, ColumnRole::kLabel, "data.label_column"));
  } else {
    const auto last = std::find(roles_.rbegin(), roles_.rend(), ColumnRole::kFeature);
    if (last != roles_.rend()) *last = ColumnRole::kLabel;
  }
  if (std::find(roles_.begin(), roles_.end(), ColumnRole::kFeature) == roles_.end()) {
    return Refuse(
        "a row needs a label and at least one feature, and has ", size(),
        size() == 1 ? " column; data.separator says what stands between cells" : " columns");
  }
  for (size_t i = 0; i < names_.size(); ++i) MACAW_RETURN_IF_ERROR(CheckName(i, guess));
  return absl::OkStatus();
}

absl::Status CsvColumns::CheckName(size_t column, bool guess) const {
  if (roles_[column] == ColumnRole::kDropped || roles_[column] == ColumnRole::kClient)
    return absl::OkStatus();
  const std::string& name = names_[column];
  if (name.empty()) {
    // Its number may be the name of another column.
    const bool taken = std::ranges::find(names_, absl::StrCat(column)) != names_.end();
    return Refuse("column ", column, " has no name in the header; if it numbers the rows, leave ",
                  "it out: data.drop_columns = [\"", taken ? "" : absl::StrCat(column), "\"]");
  }
  if (guess && NamesAClient(name)) {
    return Refuse(Text(column), " seems to say whose row it is: set data.client_column = \"", name,
                  "\", or \"", kNoColumn, "\" if no column does");
  }
  return absl::OkStatus();
}

absl::Status CsvColumns::Give(const std::string& wanted, ColumnRole role, absl::string_view key) {
  MACAW_ASSIGN_OR_RETURN(const size_t column, Find(wanted, key));
  if (roles_[column] != ColumnRole::kFeature) {
    return Refuse(key, " names ", Text(column), ", which another key names too");
  }
  roles_[column] = role;
  return absl::OkStatus();
}

absl::StatusOr<size_t> CsvColumns::Find(const std::string& wanted, absl::string_view key) const {
  const auto named = std::find(names_.begin(), names_.end(), wanted);
  if (named != names_.end()) {
    if (std::find(named + 1, names_.end(), wanted) != names_.end()) {
      return Refuse(key, " \"", wanted, "\" is the name of two columns; give a number 0 ... ",
                    size() - 1);
    }
    return static_cast<size_t>(named - names_.begin());
  }
  const std::optional<double> number = ParseNumber(wanted);
  if (number && IsWhole(*number) && *number >= 0 && *number < static_cast<double>(size())) {
    return static_cast<size_t>(*number);
  }
  if (names_.empty()) {
    return Refuse(key, " \"", wanted, "\" is no number 0 ... ", size() - 1,
                  ", and the file has no header with names");
  }
  return Refuse(key, " \"", wanted, "\" is neither a name of the header (",
                EscapeToUtf8(absl::StrJoin(names_, ", ")), ") nor a number 0 ... ", size() - 1);
}

}  // namespace macaw::data
