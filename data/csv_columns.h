#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/csv_header.h"
#include "data/options.h"

namespace macaw::data {

enum class ColumnRole : uint8_t { kFeature, kLabel, kClient, kDropped };

// The role of each column of a table, decided by its first line and the options.
class CsvColumns {
 public:
  // `cells`: the first line. Errors: a key that names no column or one that another key names, too;
  // no feature; a column without a name, or one that seems to say whose row it is.
  static absl::StatusOr<CsvColumns> Of(const std::vector<absl::string_view>& cells, bool header,
                                       const DataOptions& options);

  size_t size() const { return roles_.size(); }
  ColumnRole role(size_t column) const { return roles_[column]; }
  // Empty: the file has no header.
  const std::vector<std::string>& names() const { return names_; }
  std::vector<std::string> FeatureNames() const;
  // For csv_header.h.
  JudgedColumns judged() const;
  // For messages: column "age", or column 3 of a file without a header.
  std::string Text(size_t column) const;

 private:
  absl::Status Assign(const DataOptions& options);
  // `guess`: no key says which column holds the client.
  absl::Status CheckName(size_t column, bool guess) const;
  absl::Status Give(const std::string& wanted, ColumnRole role, absl::string_view key);
  // Finds a column by its header name, or by its number from 0.
  absl::StatusOr<size_t> Find(const std::string& wanted, absl::string_view key) const;

  std::vector<std::string> names_;
  std::vector<ColumnRole> roles_;
};

}  // namespace macaw::data
