#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "core/csv_text.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/column_spread.h"
#include "data/csv_columns.h"
#include "data/csv_header.h"
#include "data/csv_labels.h"
#include "data/known_files.h"
#include "data/readers.h"
#include "data/separator.h"
#include "data/source_file.h"
#include "data/text.h"
#include "data/unreadable_rows.h"

namespace macaw::data {
namespace {

using Cells = std::vector<absl::string_view>;

// The beginning of a line, for a message.
std::string Shortened(std::string line) {
  constexpr size_t kMost = 60;
  if (line.size() > kMost) line = absl::StrCat(line.substr(0, kMost), "…");
  return line;
}

// How much of a file says whether it is a well-known one.
constexpr size_t kKnownFileBytes = size_t{4} << 10;

class CsvReader {
 public:
  explicit CsvReader(const DataOptions& options)
      : options_(options), unreadable_(options.unreadable_rows) {}

  absl::Status Append(const std::string& path, Digester& digest) {
    path_ = &path;
    MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadSource(path, digest));
    MACAW_RETURN_IF_ERROR(CheckPlainText(bytes, path));
    const absl::string_view text = WithoutByteOrderMark(bytes);
    if (!columns_) separator_ = SeparatorOf(options_.separator, text);
    text_ = text;
    CsvText table(text, separator_);
    for (bool first = true; table.Next(); first = false) {
      absl::Status status = AppendRecord(table, first, absl::StrCat(path, " line ", table.line()));
      if (status.ok()) continue;
      const std::string known = rows() == 0 ? KnownFile(text.substr(0, kKnownFileBytes)) : "";
      if (known.empty() || absl::StrContains(status.message(), kPicturesAdvice)) return status;
      return Refuse(path, ": ", known, " (", status.message(), ")");
    }
    return absl::OkStatus();
  }

  const UnreadableRows& unreadable() const { return unreadable_; }

  // For people, of the columns whose numbers float32 hardly tells apart, over the rows so far.
  std::vector<std::string> SpreadNotes() const {
    std::vector<std::string> notes;
    for (size_t column = 0, feature = 0; feature < spreads_.size(); ++column) {
      if (columns_->role(column) != ColumnRole::kFeature) continue;
      std::string note = spreads_[feature++].Note(columns_->Text(column));
      if (!note.empty()) notes.push_back(std::move(note));
    }
    return notes;
  }

  uint64_t rows() const { return labels_.count(); }
  const CsvLabels& labels() const { return labels_; }
  // For people, of first lines that may be rows or headers.
  const std::vector<std::string>& line_notes() const { return line_notes_; }
  bool recognised_header() const { return recognised_header_; }
  // The same as SpreadNotes, of the targets of the first `rows`.
  std::string TargetNote(uint64_t rows) const {
    return labels_.SpreadNote(rows, columns_->Text(columns_->judged().label));
  }
  const std::optional<CsvColumns>& columns() const { return columns_; }
  std::vector<float> TakeFeatures() { return std::move(features_); }
  std::vector<uint32_t> TakeClients() { return std::move(client_of_row_); }
  std::vector<std::string> TakeClientNames() { return std::move(client_names_); }

 private:
  // A row that cannot be read may be left out. What the first line of a file says holds for all.
  absl::Status AppendRecord(CsvText& table, bool first, const std::string& place) {
    bool is_row = columns_.has_value() && !first;
    absl::Status status = table.status();
    if (status.ok() && !is_row) {
      const absl::StatusOr<bool> header = BeginFile(table.cells(), first, place);
      if (header.ok() && *header) return absl::OkStatus();
      is_row = header.ok();
      status = header.status();
    }
    if (status.ok()) {
      status = AppendRow(table.cells());
      if (status.ok()) return status;
      table.RereadLaterLines();
      if (first && !options_.header)
        status = Refuse(status.message(), "; if this line is a header, set data.header = true");
    }
    status = Annotate(status, place);
    return is_row ? unreadable_.Add(std::move(status)) : status;
  }

  // Whether this first line is a header.
  absl::StatusOr<bool> BeginFile(const Cells& cells, bool first, absl::string_view place) {
    const bool header = first && IsHeader(cells, place);
    if (!columns_) {
      MACAW_ASSIGN_OR_RETURN(columns_, CsvColumns::Of(cells, header, options_));
    } else if (header && !columns_->names().empty() &&
               !std::equal(cells.begin(), cells.end(), columns_->names().begin(),
                           columns_->names().end())) {
      return Refuse("has the columns ", EscapeToUtf8(absl::StrJoin(cells, ", ")),
                    ", the first file has ", EscapeToUtf8(absl::StrJoin(columns_->names(), ", ")));
    }
    return header;
  }

  // What data.header says. Else true if no cell is a number, if a cell is a name that the options
  // mention. A second file may repeat the first one's names. Else the lines behind it say it.
  bool IsHeader(const Cells& cells, absl::string_view place) {
    if (options_.header.has_value()) return *options_.header;
    const auto is_number = [](absl::string_view cell) { return ParseNumber(cell).has_value(); };
    const auto is_name = [&](absl::string_view cell) {
      const std::optional<double> number = ParseNumber(cell);
      const bool place_of_column =
          number && *number >= 0 && *number < static_cast<double>(cells.size());
      const bool named = cell == options_.label_column ||
                         (cell == options_.client_column && cell != kNoColumn) ||
                         absl::c_linear_search(options_.drop_columns, cell);
      return named && !place_of_column;
    };
    if (std::ranges::none_of(cells, is_number) || std::ranges::any_of(cells, is_name)) return true;
    if (columns_ && !columns_->names().empty())
      return std::equal(cells.begin(), cells.end(), columns_->names().begin(),
                        columns_->names().end());
    const absl::StatusOr<CsvColumns> columns =
        columns_ ? *columns_ : CsvColumns::Of(cells, /*header=*/false, options_);
    if (!columns.ok()) return false;  // BeginFile says it
    const FirstLine judged = JudgeFirstLine(text_, separator_, columns->judged());
    if (judged == FirstLine::kRow) return false;
    const std::string line =
        absl::StrCat(place, " (", EscapeToUtf8(Shortened(absl::StrJoin(cells, ", "))), ")");
    line_notes_.push_back(
        judged == FirstLine::kHeader
            ? absl::StrCat(line, " is taken for a header; data.header = false reads it as a row")
            : absl::StrCat(line,
                           " is read as a row, and may be a header: data.header = true or "
                           "false says which"));
    recognised_header_ = recognised_header_ || judged == FirstLine::kHeader;
    return judged == FirstLine::kHeader;
  }

  // Adds the whole row or nothing of it.
  absl::Status AppendRow(const Cells& cells) {
    if (cells.size() != columns_->size()) {
      return Refuse("has ", cells.size(), " cells, the first line has ", columns_->size());
    }
    row_.clear();
    size_t label = 0;
    std::optional<size_t> client;
    for (size_t i = 0; i < cells.size(); ++i) {
      switch (columns_->role(i)) {
        case ColumnRole::kDropped:
          break;
        case ColumnRole::kFeature: {
          MACAW_ASSIGN_OR_RETURN(row_.emplace_back(), FeatureOf(i, cells[i]));
          break;
        }
        case ColumnRole::kLabel:
          label = i;
          break;
        case ColumnRole::kClient:
          if (cells[i].empty()) return Refuse(columns_->Text(i), " names no client");
          if (!IsUtf8(cells[i]))
            return RefuseNotUtf8(absl::StrCat(columns_->Text(i), ": the client"), cells[i], *path_);
          client = i;
          break;
      }
    }
    MACAW_RETURN_IF_ERROR(Annotate(labels_.Append(cells[label], *path_), columns_->Text(label)));
    spreads_.resize(row_.size());
    for (size_t feature = 0; feature < row_.size(); ++feature) {
      spreads_[feature].Add(row_[feature]);
      features_.push_back(static_cast<float>(row_[feature]));
    }
    if (client.has_value()) client_of_row_.push_back(ClientOf(cells[*client]));
    return absl::OkStatus();
  }

  // A number that is finite as float32, too.
  absl::StatusOr<double> FeatureOf(size_t column, absl::string_view cell) const {
    const std::optional<double> number = ParseNumber(cell);
    const double value = number.value_or(NAN);
    if (std::isfinite(static_cast<float>(value))) return value;
    if (NamesAPicture(cell)) {
      return Refuse(columns_->Text(column), ": \"", EscapeToUtf8(cell.substr(0, 40)),
                    "\" is the name of a picture. ", kPicturesAdvice,
                    "; or leave the column out: data.drop_columns");
    }
    const absl::string_view way_out =
        number || cell.empty() ? ""
                               : "; whose row it is belongs into data.client_column, what is no "
                                 "feature into data.drop_columns";
    return Refuse(columns_->Text(column), ": \"", EscapeToUtf8(cell.substr(0, 40)),
                  "\" is not a finite number", way_out);
  }

  uint32_t ClientOf(absl::string_view name) {
    const auto [place, added] =
        clients_.try_emplace(std::string(name), static_cast<uint32_t>(client_names_.size()));
    if (added) client_names_.emplace_back(name);
    return place->second;
  }

  const DataOptions& options_;
  std::optional<CsvColumns> columns_;
  char separator_ = ',';
  const std::string* path_ = nullptr;  // of the file that is read
  absl::string_view text_;             // its text
  std::vector<std::string> line_notes_;
  bool recognised_header_ = false;  // by the lines behind it
  CsvLabels labels_{options_.predicts_numbers()};
  UnreadableRows unreadable_;
  std::vector<double> row_;            // of one row, reused
  std::vector<ColumnSpread> spreads_;  // of each feature
  std::vector<float> features_;
  std::unordered_map<std::string, uint32_t> clients_;
  std::vector<std::string> client_names_;  // in the order of their first row
  std::vector<uint32_t> client_of_row_;
};

}  // namespace

absl::StatusOr<Examples> ReadCsv(const DataOptions& options) {
  CsvReader reader(options);
  Digester digest;
  MACAW_RETURN_IF_ERROR(reader.Append(options.path, digest));
  const uint64_t own_test_begin = reader.rows();
  std::vector<std::string> spread_notes = reader.SpreadNotes();  // of the rows for training
  if (!options.test_path.empty()) MACAW_RETURN_IF_ERROR(reader.Append(options.test_path, digest));
  MACAW_RETURN_IF_ERROR(reader.unreadable().Check(reader.rows()));
  if (reader.rows() == 0) return Refuse(options.path, " holds no examples");
  // The choice of label and dropped columns also decides the rows, so it is part of the digest.
  if (!options.label_column.empty()) digest.Add(options.label_column);
  for (const std::string& column : options.drop_columns) digest.Add(column);
  if (options.predicts_numbers()) digest.Add("labels numbers");
  if (!options.separator.empty()) digest.Add(absl::StrCat("separator ", options.separator));
  if (options.header.has_value() || reader.recognised_header())
    digest.Add(options.header.value_or(true) ? "header true" : "header false");

  ExampleStore store;
  MACAW_ASSIGN_OR_RETURN(StoredLabels labels, reader.labels().Store(options, store));
  if (!labels.order.empty()) digest.Add(labels.order);
  store.floats = reader.TakeFeatures();
  const uint64_t width = store.floats.size() / reader.rows();
  MACAW_ASSIGN_OR_RETURN(Examples examples, Own(std::move(store), width, options.path));
  examples.name = "csv";
  examples.input_shape = {static_cast<int64_t>(width)};
  examples.classes = labels.classes;
  examples.class_names = std::move(labels.names);
  examples.feature_names = reader.columns()->FeatureNames();
  examples.notes = reader.unreadable().Notes(reader.rows());
  std::ranges::copy(reader.line_notes(), std::back_inserter(examples.notes));
  std::ranges::move(spread_notes, std::back_inserter(examples.notes));
  if (!labels.note.empty()) examples.notes.push_back(std::move(labels.note));
  std::string target_note = reader.TargetNote(own_test_begin);
  if (!target_note.empty()) examples.notes.push_back(std::move(target_note));
  examples.train.end = examples.own_test.begin = own_test_begin;
  examples.client_of_row = reader.TakeClients();
  examples.group_names = reader.TakeClientNames();
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
