#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/utf8.h"

namespace macaw {

// The records of a table as text, one after another (RFC 4180 and what spreadsheets make of it).
// Cells stand between separators. A cell in quotation marks may hold separators, line breaks, and
// quotation marks, which are doubled. A quotation mark inside another cell is a character of it.
// A byte order mark in front of the first record is skipped. Lines end with "\n", "\r\n" or "\r".
// Blank lines are skipped. One thread.
class CsvText {
 public:
  // `text` must live as long.
  CsvText(absl::string_view text, char separator)
      : rest_(WithoutByteOrderMark(text)), separator_(separator) {}

  // Reads the next record. False: there is none. If status() is an error, the first line of the
  // record is left out, and the next record begins behind it.
  bool Next();

  const absl::Status& status() const { return status_; }
  // Valid until the next call of Next.
  const std::vector<absl::string_view>& cells() const { return cells_; }
  int64_t line() const { return line_; }  // on which the record begins, from 1
  bool at_end() const { return rest_.empty(); }

  // Reads the later lines of this record as records of their own. For a record that makes no sense:
  // a quotation mark that is never closed takes in rows that do.
  void RereadLaterLines();

 private:
  absl::Status Parse();
  void Consume(size_t bytes, int64_t breaks);

  absl::string_view rest_;
  const char separator_;
  absl::string_view record_;  // from its first character to the end of the text
  int64_t line_ = 0, next_line_ = 1;
  absl::Status status_;
  std::vector<absl::string_view> cells_;
  std::deque<std::string> unquoted_;  // the texts of quoted cells
};

// The separator of a table, found outside of quotation marks: the comma, semicolon or tab that cuts
// its first two records into equally many cells, or at least the first one into several.
char FindSeparator(absl::string_view text);

}  // namespace macaw
