#pragma once

#include <string>
#include <vector>

namespace macaw::cli {

// Lines of cells as columns that are aligned on the screen, two spaces apart. All lines have as
// many cells as the first.
std::string AlignedText(const std::vector<std::vector<std::string>>& lines);

// A line of CSV (RFC 4180, but with \n): a cell with a comma, a quote or a line break is quoted.
std::string CsvLine(const std::vector<std::string>& cells);

}  // namespace macaw::cli
