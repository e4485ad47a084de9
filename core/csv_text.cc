#include "core/csv_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/text.h"

namespace macaw {
namespace {

constexpr char kSeparators[] = {',', ';', '\t'};

// Where the first line of `text` ends.
size_t FirstLineEnd(absl::string_view text) {
  return std::min(text.find_first_of("\r\n"), text.size());
}

bool IsBlank(absl::string_view text) { return absl::StripAsciiWhitespace(text).empty(); }

// Whether `text` begins like a table with this separator: two records of several cells, equally
// many.
bool LooksLikeTable(absl::string_view text, char separator) {
  CsvText table(text, separator);
  if (!table.Next() || !table.status().ok() || table.cells().size() < 2) return false;
  const size_t cells = table.cells().size();
  return !table.Next() || (table.status().ok() && table.cells().size() == cells);
}

}  // namespace

void CsvText::Consume(size_t bytes, int64_t breaks) {
  const size_t end = LineEndBytes(rest_.substr(bytes));
  rest_.remove_prefix(bytes + end);
  next_line_ += breaks + (end > 0 ? 1 : 0);
}

bool CsvText::Next() {
  while (!rest_.empty()) {
    size_t blanks = 0;
    while (blanks < rest_.size() && LineEndBytes(rest_.substr(blanks)) == 0 &&
           absl::ascii_isspace(static_cast<unsigned char>(rest_[blanks]))) {
      ++blanks;
    }
    line_ = next_line_;
    if (blanks == rest_.size() || LineEndBytes(rest_.substr(blanks)) > 0) {
      Consume(blanks, 0);
      continue;
    }
    record_ = rest_;
    status_ = Parse();
    if (!status_.ok()) Consume(FirstLineEnd(rest_), 0);
    return true;
  }
  return false;
}

void CsvText::RereadLaterLines() {
  rest_ = record_;
  next_line_ = line_;
  Consume(FirstLineEnd(rest_), 0);
}

absl::Status CsvText::Parse() {
  const absl::string_view text = rest_;
  const auto refuse = [this](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("cell ", cells_.size(), " ", why));
  };
  const auto end_of_cell = [&](size_t at) {
    while (at < text.size() && text[at] != separator_ && text[at] != '\n' && text[at] != '\r') ++at;
    return at;
  };
  cells_.clear();
  unquoted_.clear();
  int64_t breaks = 0;
  for (size_t at = 0;;) {
    size_t first = at;
    while (first < text.size() && text[first] != separator_ &&
           (text[first] == ' ' || text[first] == '\t')) {
      ++first;
    }
    size_t end = 0;
    if (first >= text.size() || text[first] != '"') {
      end = end_of_cell(at);
      cells_.push_back(absl::StripAsciiWhitespace(text.substr(at, end - at)));
    } else {
      std::string& cell = unquoted_.emplace_back();
      size_t c = first + 1;
      for (; c < text.size(); ++c) {
        if (text[c] == '"') {
          if (c + 1 >= text.size() || text[c + 1] != '"') break;
          ++c;
        }
        breaks += text[c] == '\n' || (text[c] == '\r' && LineEndBytes(text.substr(c)) == 1) ? 1 : 0;
        cell += text[c];
      }
      if (c >= text.size()) return refuse("opens a quotation mark that is never closed");
      end = end_of_cell(c + 1);
      if (!IsBlank(text.substr(c + 1, end - c - 1)))
        return refuse("goes on behind its closing quotation mark");
      cells_.push_back(cell);
    }
    if (end >= text.size() || text[end] != separator_) {
      Consume(end, breaks);
      return absl::OkStatus();
    }
    at = end + 1;
  }
}

char FindSeparator(absl::string_view text) {
  for (const char separator : kSeparators) {
    if (LooksLikeTable(text, separator)) return separator;
  }
  for (const char separator : kSeparators) {
    CsvText table(text, separator);
    if (table.Next() && table.status().ok() && table.cells().size() > 1) return separator;
  }
  return kSeparators[0];
}

}  // namespace macaw
