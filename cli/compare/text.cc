#include "cli/compare/text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/csv_cell.h"

namespace macaw::cli {
namespace {

// The width on screen: a "±" is two bytes but one column.
size_t WidthOf(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string AlignedText(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], WidthOf(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      absl::StrAppend(&text, line[i]);
      if (i + 1 < line.size()) text.append(widths[i] - WidthOf(line[i]) + 2, ' ');
    }
    text.push_back('\n');
  }
  return text;
}

std::string CsvLine(const std::vector<std::string>& cells) {
  return absl::StrCat(
      absl::StrJoin(cells, ",",
                    [](std::string* out, const std::string& cell) { out->append(CsvCell(cell)); }),
      "\n");
}

}  // namespace macaw::cli
