#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "data/readers.h"
#include "data/source_file.h"
#include "data/text.h"

namespace macaw::data {
namespace {

std::vector<absl::string_view> Cells(absl::string_view line, char separator) {
  std::vector<absl::string_view> cells;
  while (true) {
    const size_t end = line.find(separator);
    absl::string_view cell = absl::StripAsciiWhitespace(line.substr(0, end));
    if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
      cell = cell.substr(1, cell.size() - 2);
    }
    cells.push_back(cell);
    if (end == absl::string_view::npos) return cells;
    line.remove_prefix(end + 1);
  }
}

char SeparatorOf(absl::string_view line) {
  for (const char separator : {',', ';', '\t'}) {
    if (line.find(separator) != absl::string_view::npos) return separator;
  }
  return ',';
}

class CsvReader {
 public:
  explicit CsvReader(std::string label_column) : label_column_(std::move(label_column)) {}

  absl::Status Append(const std::string& path, Digester& digest) {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadSource(path, digest));
    bool first = true;
    return ForEachLine(text, [&](int64_t number, absl::string_view line) {
      if (absl::StripAsciiWhitespace(line).empty()) return absl::OkStatus();
      if (columns_ == 0) separator_ = SeparatorOf(line);
      const std::vector<absl::string_view> cells = Cells(line, separator_);
      const bool header = std::exchange(first, false) &&
                          std::none_of(cells.begin(), cells.end(), [](absl::string_view cell) {
                            return ParseNumber(cell).has_value();
                          });
      const std::string where = absl::StrCat(path, " line ", number);
      if (columns_ == 0) MACAW_RETURN_IF_ERROR(Annotate(ChooseLabel(cells, header), where));
      return header ? absl::OkStatus() : Annotate(AppendRow(cells), where);
    });
  }

  uint64_t width() const { return columns_ - 1; }
  uint64_t rows() const { return labels_.size(); }
  const std::vector<double>& labels() const { return labels_; }
  bool whole() const { return whole_; }
  std::vector<float> TakeFeatures() && { return std::move(features_); }

 private:
  absl::Status ChooseLabel(const std::vector<absl::string_view>& cells, bool header) {
    columns_ = cells.size();
    label_ = columns_ - 1;
    if (columns_ < 2)
      return absl::InvalidArgumentError("a row needs a label and at least one feature");
    if (label_column_.empty()) return absl::OkStatus();
    if (header) {
      const auto named = std::find(cells.begin(), cells.end(), label_column_);
      if (named != cells.end()) {
        label_ = static_cast<size_t>(named - cells.begin());
        return absl::OkStatus();
      }
    }
    const std::optional<double> number = ParseNumber(label_column_);
    if (!number || !IsWhole(*number) || *number < 0 || *number >= static_cast<double>(columns_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.label_column \"", label_column_,
                       "\" is neither a name of the header nor a number 0 ... ", columns_ - 1));
    }
    label_ = static_cast<size_t>(*number);
    return absl::OkStatus();
  }

  absl::Status AppendRow(const std::vector<absl::string_view>& cells) {
    if (cells.size() != columns_) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", cells.size(), " cells, the first line has ", columns_));
    }
    for (size_t i = 0; i < columns_; ++i) {
      const double value = ParseNumber(cells[i]).value_or(NAN);
      if (!std::isfinite(static_cast<float>(value))) {
        return absl::InvalidArgumentError(absl::StrCat("column ", i, ": \"", cells[i].substr(0, 40),
                                                       "\" is not a finite number"));
      }
      if (i == label_) {
        labels_.push_back(value);
        whole_ = whole_ && IsWhole(value);
      } else {
        features_.push_back(static_cast<float>(value));
      }
    }
    return absl::OkStatus();
  }

  const std::string label_column_;
  size_t columns_ = 0;
  size_t label_ = 0;
  char separator_ = ',';
  bool whole_ = true;
  std::vector<double> labels_;
  std::vector<float> features_;
};

}  // namespace

absl::StatusOr<Examples> ReadCsv(const DataOptions& options) {
  CsvReader reader(options.label_column);
  Digester digest;
  MACAW_RETURN_IF_ERROR(reader.Append(options.path, digest));
  const uint64_t own_test_begin = reader.rows();
  if (!options.test_path.empty()) MACAW_RETURN_IF_ERROR(reader.Append(options.test_path, digest));
  if (reader.rows() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(options.path, " holds no examples"));
  }
  const uint64_t width = reader.width();
  ExampleStore store;
  int64_t classes = 0;
  if (reader.whole()) {
    MACAW_ASSIGN_OR_RETURN(ClassMap map,
                           MapClasses(reader.labels(), options.classes, options.path));
    classes = std::max<int64_t>(static_cast<int64_t>(map.map.size()), options.classes);
    store.classes = std::move(map.classes);
  } else {
    store.targets.assign(reader.labels().begin(), reader.labels().end());
  }
  store.floats = std::move(reader).TakeFeatures();
  MACAW_ASSIGN_OR_RETURN(Examples examples, Own(std::move(store), width, options.path));
  examples.name = "csv";
  examples.input_shape = {static_cast<int64_t>(width)};
  examples.classes = classes;
  examples.train.end = examples.own_test.begin = own_test_begin;
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
