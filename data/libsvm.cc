#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/number_labels.h"
#include "data/readers.h"
#include "data/source_file.h"
#include "data/text.h"
#include "data/unreadable_rows.h"

namespace macaw::data {
namespace {

// The sparse rows of all files. They become dense once the largest index is known.
struct SparseRows {
  std::vector<double> labels;
  std::vector<size_t> ends;  // the end of each row in columns and values
  std::vector<uint32_t> columns;
  std::vector<float> values;
  uint32_t width = 0;
  bool whole = true;
};

absl::Status AppendRow(absl::string_view line, SparseRows& rows) {
  const auto next_token = [&line] {
    line = absl::StripLeadingAsciiWhitespace(line);
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    const absl::string_view token = line.substr(0, end);
    line.remove_prefix(end);
    return token;
  };
  const auto refuse = [](auto... words) {
    return absl::InvalidArgumentError(absl::StrCat(words...));
  };
  const absl::string_view label_text = next_token();
  const std::optional<double> label = ParseNumber(label_text);
  if (!label || !std::isfinite(*label)) {
    return refuse("label \"", EscapeToUtf8(label_text.substr(0, 40)), "\" is not a finite number");
  }
  uint32_t last = 0;
  for (absl::string_view token = next_token(); !token.empty(); token = next_token()) {
    const size_t colon = token.find(':');
    uint32_t index = 0;
    const char* index_end = token.data() + std::min(colon, token.size());
    const auto [end, error] = std::from_chars(token.data(), index_end, index);
    if (colon == absl::string_view::npos || error != std::errc() || end != index_end) {
      return refuse("\"", EscapeToUtf8(token.substr(0, 40)), "\" is not index:value");
    }
    if (index == 0) return refuse("index 0; LIBSVM indices start at 1");
    if (index <= last) return refuse("index ", index, " follows ", last, "; indices must ascend");
    const std::optional<double> number = ParseNumber(token.substr(colon + 1));
    const float value = static_cast<float>(number.value_or(NAN));
    if (!std::isfinite(value)) {
      return refuse("value \"", EscapeToUtf8(token.substr(colon + 1, 40)), "\" of index ", index,
                    " is not a finite number");
    }
    rows.columns.push_back(index - 1);
    rows.values.push_back(value);
    last = index;
  }
  rows.width = std::max(rows.width, last);
  rows.whole = rows.whole && IsWholeLabel(*label, label_text);
  rows.labels.push_back(*label);
  rows.ends.push_back(rows.columns.size());
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> AppendFile(const std::string& path, SparseRows& rows,
                                    UnreadableRows& unreadable, Digester& digest) {
  MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadSource(path, digest));
  MACAW_RETURN_IF_ERROR(CheckPlainText(bytes, path));
  const absl::string_view text = WithoutByteOrderMark(bytes);
  MACAW_RETURN_IF_ERROR(ForEachLine(text, [&](int64_t number, absl::string_view line) {
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) return absl::OkStatus();
    const absl::Status status =
        Annotate(AppendRow(line, rows), absl::StrCat(path, " line ", number));
    if (status.ok()) return status;
    // Nothing of the row stays.
    rows.columns.resize(rows.ends.empty() ? 0 : rows.ends.back());
    rows.values.resize(rows.columns.size());
    return unreadable.Add(status);
  }));
  return text.size();
}

}  // namespace

absl::StatusOr<Examples> ReadLibsvm(const DataOptions& options) {
  SparseRows rows;
  UnreadableRows unreadable(options.unreadable_rows);
  Digester digest;
  MACAW_ASSIGN_OR_RETURN(uint64_t text_bytes, AppendFile(options.path, rows, unreadable, digest));
  const uint64_t own_test_begin = rows.labels.size();
  if (!options.test_path.empty()) {
    MACAW_ASSIGN_OR_RETURN(const uint64_t more,
                           AppendFile(options.test_path, rows, unreadable, digest));
    text_bytes += more;
  }
  MACAW_RETURN_IF_ERROR(unreadable.Check(rows.labels.size()));
  const uint64_t dense_bytes = rows.labels.size() * uint64_t{rows.width} * sizeof(float);
  const uint64_t most = std::min(uint64_t{16} << 30, (uint64_t{1} << 20) + 4096 * text_bytes);
  if (dense_bytes > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.path, ": ", rows.labels.size(), " rows of ", rows.width,
                     " features need ", dense_bytes, " bytes as dense rows, more than is sane for ",
                     text_bytes, " bytes of text; is the index ", rows.width, " right?"));
  }
  ExampleStore store;
  store.floats.resize(rows.labels.size() * uint64_t{rows.width});
  for (size_t row = 0, at = 0; row < rows.ends.size(); ++row) {
    for (; at < rows.ends[row]; ++at) {
      store.floats[row * rows.width + rows.columns[at]] = rows.values[at];
    }
  }
  NumberClasses classes;
  if (rows.whole && !options.predicts_numbers()) {
    MACAW_ASSIGN_OR_RETURN(classes, ClassesOfNumbers(rows.labels, options));
    if (classes.ordered_by_names) digest.Add(absl::StrJoin(options.class_names, "\n"));
    store.classes = std::move(classes.of_row);
  } else {
    if (options.predicts_numbers()) digest.Add("labels numbers");
    store.targets.assign(rows.labels.begin(), rows.labels.end());
  }
  MACAW_ASSIGN_OR_RETURN(Examples examples, Own(std::move(store), rows.width, options.path));
  examples.name = "libsvm";
  examples.input_shape = {rows.width};
  examples.classes = classes.count;
  examples.class_names = std::move(classes.names);
  examples.notes = unreadable.Notes(rows.labels.size());
  if (!classes.note.empty()) examples.notes.push_back(std::move(classes.note));
  NoteTargets(std::span(rows.labels).first(own_test_begin), examples);
  examples.train.end = examples.own_test.begin = own_test_begin;
  examples.digest = digest.Finish();
  return examples;
}

}  // namespace macaw::data
