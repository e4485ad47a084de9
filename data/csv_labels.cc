#include "data/csv_labels.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/column_spread.h"
#include "data/number_labels.h"
#include "data/source_file.h"
#include "data/text.h"

namespace macaw::data {
namespace {

constexpr double kLargestExact = 0x1.0p53;  // of the whole numbers of float64

std::string OrderOf(const std::vector<std::string>& names) { return absl::StrJoin(names, "\n"); }

std::string OrderUnlessSorted(const std::vector<std::string>& names) {
  return std::ranges::is_sorted(names) ? "" : OrderOf(names);
}

}  // namespace

absl::Status CsvLabels::Append(absl::string_view cell, const std::string& file) {
  const std::optional<double> number = ParseNumber(cell);
  if (!number && !IsUtf8(cell)) return RefuseNotUtf8("the label", cell, file);
  if (cell.empty() || (number && !std::isfinite(static_cast<float>(*number)))) {
    return Refuse("\"", cell, "\" is no label");
  }
  if (as_numbers_ && !number) {
    return Refuse(Quoted(cell.substr(0, 40)),
                  " is a word, and data.labels = \"numbers\" asks for numbers");
  }
  if (count() > 0 && number.has_value() != words_.empty()) {
    return Refuse(Quoted(cell.substr(0, 40)), " is ", number ? "a number" : "a word",
                  ", the labels before it are ", number ? "words" : "numbers");
  }
  if (number) {
    numbers_.push_back(*number);
    whole_ = whole_ && IsWholeLabel(*number, cell);
    if (std::fabs(*number) >= kLargestExact) {
      if (first_large_.empty()) first_large_ = std::string(cell);
      large_differ_ = large_differ_ || cell != first_large_;
    }
  } else {
    of_row_.push_back(words_.try_emplace(std::string(cell), words_.size()).first->second);
  }
  return absl::OkStatus();
}

std::string CsvLabels::SpreadNote(uint64_t rows, absl::string_view column) const {
  if (AreClasses()) return "";
  const std::span<const double> targets = std::span(numbers_).first(rows);
  std::string note = SpreadOf(targets).Note(column);
  const bool equal =
      std::ranges::adjacent_find(targets, std::ranges::not_equal_to()) == targets.end();
  if (!note.empty() || !large_differ_ || !equal) return note;
  return absl::StrFormat(
      "%s has whole numbers beyond 2^53 that differ and are all read as %.17g: subtract a number "
      "near them, such as the minimum, or make words of them if they are classes",
      column, numbers_.front());
}

absl::StatusOr<StoredLabels> CsvLabels::Store(const DataOptions& options,
                                              ExampleStore& store) const {
  if (!words_.empty()) return StoreWords(options, store);
  StoredLabels stored;
  if (!AreClasses()) {
    store.targets.assign(numbers_.begin(), numbers_.end());
    return stored;
  }
  MACAW_ASSIGN_OR_RETURN(NumberClasses classes, ClassesOfNumbers(numbers_, options));
  stored.classes = classes.count;
  store.classes = std::move(classes.of_row);
  stored.order =
      classes.ordered_by_names ? OrderOf(options.class_names) : OrderUnlessSorted(classes.names);
  stored.names = std::move(classes.names);
  stored.note = std::move(classes.note);
  return stored;
}

absl::StatusOr<StoredLabels> CsvLabels::StoreWords(const DataOptions& options,
                                                   ExampleStore& store) const {
  StoredLabels stored;
  MACAW_ASSIGN_OR_RETURN(stored.names, NamesOfWords(options));
  const std::vector<std::string>& names = stored.names;
  if (options.classes > 0 && names.size() > static_cast<uint64_t>(options.classes)) {
    return Refuse(options.path, " holds ", names.size(), " different labels, but data.classes is ",
                  options.classes);
  }
  std::vector<int32_t> place(words_.size());
  for (size_t c = 0; c < names.size(); ++c) {
    const auto found = words_.find(names[c]);
    if (found != words_.end()) place[found->second] = static_cast<int32_t>(c);
  }
  for (const uint32_t word : of_row_) store.classes.push_back(place[word]);
  stored.classes = std::max<int64_t>(static_cast<int64_t>(names.size()), options.classes);
  stored.order = OrderUnlessSorted(names);
  return stored;
}

// On a device a class may be missing, so that its own words do not number the others'.
absl::StatusOr<std::vector<std::string>> CsvLabels::NamesOfWords(const DataOptions& options) const {
  std::vector<std::string> words;
  for (const auto& [word, number] : words_) words.push_back(word);
  std::sort(words.begin(), words.end());
  const auto unnamed = [&](const std::string& word) {
    return std::ranges::find(options.class_names, word) == options.class_names.end();
  };
  const auto other = std::ranges::find_if(words, unnamed);
  if (other == words.end()) {
    MACAW_RETURN_IF_ERROR(CheckNoneTwice(options.class_names));
    return options.class_names;
  }
  // None of them: other names for the same classes.
  if (std::ranges::all_of(words, unnamed)) {
    if (static_cast<int64_t>(words.size()) >= options.classes) return words;
    return Refuse(options.path, " holds ", words.size(), " of the ", options.classes,
                  " classes that data.classes says, as words (", absl::StrJoin(words, ", "),
                  "). Which ones are missing decides their numbers, "
                  "so a node would number them unlike the others: list all words in "
                  "data.class_names, in the order that every node uses");
  }
  return Refuse(options.path, " holds the label \"", *other,
                "\", which is none of data.class_names (", absl::StrJoin(options.class_names, ", "),
                ")");
}

}  // namespace macaw::data
