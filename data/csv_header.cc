#include "data/csv_header.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/csv_text.h"
#include "data/text.h"

namespace macaw::data {
namespace {

using Cells = std::vector<absl::string_view>;

constexpr size_t kRowsToRead = 1000;
// Fewer rows may have fractions alone, or one label each, by chance.
constexpr size_t kRowsThatTell = 10, kRowsThatHint = 3;

bool IsNumber(absl::string_view cell) { return ParseNumber(cell).has_value(); }

// A name, and no sign that a value is missing.
bool IsName(absl::string_view cell) {
  const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(cell));
  if (word.empty() || IsNumber(word)) return false;
  const auto first = static_cast<unsigned char>(word.front());
  const bool letter = absl::ascii_isalpha(first) || first == '_' || first >= 0x80;
  for (const char* missing : {"na", "n/a", "nan", "null", "none", "nil", "missing"}) {
    if (word == missing) return false;
  }
  return letter;
}

// Whether the first cells (at most six) are numbers of which each is one more than the last.
bool CountsUp(const Cells& cells, size_t most = 6) {
  const size_t end = std::min(cells.size(), most);
  std::optional<double> before;
  for (size_t i = 0; i < end; ++i) {
    const std::optional<double> number = ParseNumber(cells[i]);
    if (!number || (before && *number != *before + 1)) return false;
    before = number;
  }
  return true;
}

// What the lines behind the first one have.
struct LaterRows {
  size_t count = 0;
  std::vector<bool> fractions;  // of each column: numbers, and none that is written as a whole one
  size_t number_labels = 0;
  bool has_first_label = false;
  std::unordered_set<std::string> labels;
  bool any_counts_up = false;

  void Add(const Cells& cells, const Cells& first, size_t label) {
    ++count;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].empty()) continue;  // a gap says nothing
      fractions[i] = fractions[i] && IsNumber(cells[i]) && !IsWholeText(cells[i]);
    }
    number_labels += IsNumber(cells[label]) ? 1 : 0;
    has_first_label = has_first_label || cells[label] == first[label];
    labels.emplace(cells[label]);
    any_counts_up = any_counts_up || CountsUp(cells);
  }
  bool LabelsRepeat() const { return 2 * labels.size() <= count; }
};

LaterRows ReadLaterRows(CsvText& table, const Cells& first, size_t label) {
  LaterRows rows;
  rows.fractions.assign(first.size(), true);
  while (rows.count < kRowsToRead && table.Next()) {
    if (table.status().ok() && table.cells().size() == first.size())
      rows.Add(table.cells(), first, label);
  }
  return rows;
}

}  // namespace

FirstLine JudgeFirstLine(absl::string_view text, char separator, const JudgedColumns& columns) {
  CsvText table(text, separator);
  if (!table.Next() || !table.status().ok()) return FirstLine::kRow;
  const std::vector<std::string> kept(table.cells().begin(), table.cells().end());
  const Cells first(kept.begin(), kept.end());
  if (columns.is_feature.size() != first.size()) return FirstLine::kRow;
  size_t numbers = 0, features = 0;
  bool whole = true, places = true;
  for (size_t i = 0; i < first.size(); ++i) {
    features += columns.is_feature[i] ? 1 : 0;
    if (!IsNumber(first[i])) {
      if (columns.is_feature[i]) return FirstLine::kRow;  // which is refused, with the column
      continue;
    }
    ++numbers;
    whole = whole && IsWholeText(first[i]);
    places = places && first[i] == absl::StrCat(i);
  }
  if (!whole) return FirstLine::kRow;
  const LaterRows rows = ReadLaterRows(table, first, columns.label);

  const absl::string_view label = first[columns.label];
  const bool word = !IsNumber(label);
  const bool unlike = rows.count >= 2 && (word ? IsName(label) && rows.number_labels == rows.count
                                               : rows.number_labels == 0);
  const bool own_label = !rows.has_first_label && rows.LabelsRepeat() && (!word || IsName(label));
  bool all_fractions = true, any_fractions = false;
  for (size_t i = 0; i < first.size(); ++i) {
    if (columns.is_feature[i]) all_fractions = all_fractions && rows.fractions[i];
    if (columns.is_feature[i] || (i == columns.label && !word))
      any_fractions = any_fractions || rows.fractions[i];
  }
  if (places && unlike) return FirstLine::kHeader;
  if (places && rows.count >= kRowsThatTell) {
    if (features >= 2 && all_fractions) return FirstLine::kHeader;
    if (word && own_label && numbers >= 2) return FirstLine::kHeader;
    if (!word && own_label && numbers >= 4 && !rows.any_counts_up) return FirstLine::kHeader;
    if (numbers >= 8 && !rows.any_counts_up) return FirstLine::kHeader;
  }
  const bool hint = any_fractions || (numbers >= 3 && CountsUp(first, numbers) &&
                                      numbers == first.size() && !rows.any_counts_up);
  if (rows.count >= kRowsThatHint && hint) return FirstLine::kPerhapsHeader;
  if (word && own_label && rows.count >= kRowsThatTell) return FirstLine::kPerhapsHeader;
  // "0,1,label" over a few rows.
  const bool named_places = places && numbers >= 2 && word && IsName(label);
  return named_places && rows.count > 0 && !rows.has_first_label ? FirstLine::kPerhapsHeader
                                                                 : FirstLine::kRow;
}

}  // namespace macaw::data
