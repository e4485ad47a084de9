#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace macaw::data {

// Counts the rows of a text that cannot be read and are left out, and says when they are more than
// the owner allows (data.unreadable_rows).
class UnreadableRows {
 public:
  // `allowed`: the largest share of all rows; 0: none.
  explicit UnreadableRows(double allowed) : allowed_(allowed) {}

  // `why` names file, line and what is wrong. Returned if no row may be unreadable.
  absl::Status Add(absl::Status why) {
    if (allowed_ <= 0) return why;
    if (count_++ == 0) first_ = std::string(why.message());
    return absl::OkStatus();
  }
  // After the last row. `read`: how many could be read.
  absl::Status Check(uint64_t read) const {
    const uint64_t rows = read + count_;
    if (static_cast<double>(count_) <= allowed_ * static_cast<double>(rows))
      return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(first_, "; ", count_, " of ", rows,
                                                   " rows cannot be read, and "
                                                   "data.unreadable_rows allows a share of ",
                                                   allowed_));
  }
  // For people; no line if every row was read.
  std::vector<std::string> Notes(uint64_t read) const {
    if (count_ == 0) return {};
    return {absl::StrCat(count_, " of ", read + count_,
                         " rows cannot be read and are left out; the first: ", first_)};
  }

 private:
  const double allowed_;
  uint64_t count_ = 0;
  std::string first_;
};

}  // namespace macaw::data
