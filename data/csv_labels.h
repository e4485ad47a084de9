#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/examples.h"
#include "data/options.h"

namespace macaw::data {

// What became of a table's labels.
struct StoredLabels {
  int64_t classes = 0;  // 0: regression
  std::vector<std::string> names;
  std::string order;  // for the digest: the order of the classes where it is not the usual one
  std::string note;   // for people; empty: none
};

// The labels of a table: all of them numbers, or all of them words.
class CsvLabels {
 public:
  // `as_numbers`: whole numbers are targets, too (data.labels = "numbers").
  explicit CsvLabels(bool as_numbers) : as_numbers_(as_numbers) {}

  // Adds the label of one more row, or nothing. `file` is for messages.
  absl::Status Append(absl::string_view cell, const std::string& file);

  size_t count() const { return numbers_.size() + of_row_.size(); }

  // For people, of regression targets that float32 hardly tells apart, over the first `rows`. "" if
  // there are none. `column` names them.
  std::string SpreadNote(uint64_t rows, absl::string_view column) const;

  // Stores labels as classes, with names unless they are just 0 … k−1; or as regression targets.
  // data.class_names decide their order where they are labels of the file (number_labels.h for
  // numbers); else it is sorted order, which needs all of data.classes of words.
  absl::StatusOr<StoredLabels> Store(const DataOptions& options, ExampleStore& store) const;

 private:
  bool AreClasses() const { return whole_ && !as_numbers_; }
  absl::StatusOr<StoredLabels> StoreWords(const DataOptions& options, ExampleStore& store) const;
  absl::StatusOr<std::vector<std::string>> NamesOfWords(const DataOptions& options) const;

  const bool as_numbers_;
  std::vector<double> numbers_;
  bool whole_ = true;
  std::string first_large_;  // the first number beyond those that float64 has exactly
  bool large_differ_ = false;
  std::unordered_map<std::string, uint32_t> words_;  // in the order of their first row
  std::vector<uint32_t> of_row_;
};

}  // namespace macaw::data
