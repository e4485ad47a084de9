#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/track/growing_file.h"
#include "cli/track/tracker.h"
#include "core/csv_cell.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// The cells of the first line, and the offset behind it. Nothing: the line is not complete.
std::optional<std::pair<std::vector<std::string>, size_t>> ParseHeader(absl::string_view text) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"') {
      cells.back().push_back('"');
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c == '\n' && !quoted) {
      return std::pair(std::move(cells), i + 1);
    } else {
      cells.back().push_back(c);
    }
  }
  return std::nullopt;
}

std::string HeaderLine(const std::vector<std::string>& columns) {
  return absl::StrCat(absl::StrJoin(columns, ",",
                                    [](std::string* out, const std::string& column) {
                                      absl::StrAppend(out, CsvCell(column));
                                    }),
                      "\n");
}

class CsvTracker final : public Tracker {
 public:
  absl::StatusOr<int64_t> Open(const RunFacts& facts) override {
    path_ = facts.folder + "/metrics.csv";
    MACAW_ASSIGN_OR_RETURN(file_, GrowingFile::Open(path_));
    MACAW_ASSIGN_OR_RETURN(const std::string text, file_->Read());
    columns_ = {"round"};
    auto header = ParseHeader(text);
    const size_t end = text.rfind('\n');
    if (!header.has_value() || header->first.front() != "round") {
      MACAW_RETURN_IF_ERROR(file_->Cut(0));
      return kNoRound;
    }
    columns_ = std::move(header->first);
    MACAW_RETURN_IF_ERROR(file_->Cut(end + 1));  // a line that a crash has torn
    if (end + 1 == header->second) return kNoRound;
    // The last line begins behind the line break before it.
    const size_t begin = text.rfind('\n', end - 1) + 1;
    int64_t round = 0;
    const absl::string_view cell =
        absl::string_view(text).substr(begin, text.find_first_of(",\n", begin) - begin);
    if (!absl::SimpleAtoi(cell, &round)) {
      return absl::DataLossError(absl::StrCat(path_, " was changed: its last line begins with \"",
                                              cell, "\" and not with a round; remove the file"));
    }
    return round;
  }

  absl::Status Deliver(const std::vector<Row>& rows) override {
    MACAW_RETURN_IF_ERROR(AddColumns(rows));
    std::string lines = file_->size() == 0 ? HeaderLine(columns_) : "";
    for (const Row& row : rows) {
      std::vector<absl::string_view> cells(columns_.size());
      for (const Metric& metric : row.metrics) cells[PlaceOf(metric.name)] = metric.text;
      const std::string round = absl::StrCat(row.round);
      cells[0] = round;
      absl::StrAppend(&lines, absl::StrJoin(cells, ","), "\n");
    }
    return file_->Append(lines);
  }

  absl::Status Close(const RunEnd&) override { return absl::OkStatus(); }

 private:
  size_t PlaceOf(const std::string& name) const {
    return static_cast<size_t>(std::ranges::find(columns_, name) - columns_.begin());
  }

  // Gives the rows that are there an empty cell for each column that is new. They hold numbers
  // alone, so a line of the file is a row.
  absl::Status AddColumns(const std::vector<Row>& rows) {
    const size_t before = columns_.size();
    for (const Row& row : rows) {
      for (const Metric& metric : row.metrics) {
        if (PlaceOf(metric.name) == columns_.size()) columns_.push_back(metric.name);
      }
    }
    if (columns_.size() == before || file_->size() == 0) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const std::string text, file_->Read());
    const auto header = ParseHeader(text);
    if (!header.has_value()) return absl::DataLossError(absl::StrCat(path_, " has lost its head"));
    std::string wider = HeaderLine(columns_);
    const std::string cells(columns_.size() - before, ',');
    for (size_t begin = header->second; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      absl::StrAppend(&wider, absl::string_view(text).substr(begin, end - begin), cells, "\n");
      begin = end + 1;
    }
    file_.reset();
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(path_, wider));
    MACAW_ASSIGN_OR_RETURN(file_, GrowingFile::Open(path_));
    return absl::OkStatus();
  }

  std::string path_;
  std::optional<GrowingFile> file_;
  std::vector<std::string> columns_;  // as in the file's head, once it has one
};

}  // namespace

std::unique_ptr<Tracker> MakeCsvTracker() { return std::make_unique<CsvTracker>(); }

}  // namespace macaw::cli
