#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/options.h"

namespace macaw::data {

// Whole-numbered labels of a text as classes.
struct NumberClasses {
  std::vector<int32_t> of_row;
  int64_t count = 0;
  std::vector<std::string> names;  // of each class; empty: 0 ... count-1
  // data.class_names numbers them, and otherwise than sorted order would.
  bool ordered_by_names = false;
  std::string note;  // for people; empty: none
};

// Numbers them as data.class_names lists them where these are the labels, or these and more; else
// in sorted order (MapClasses), and data.class_names are other names for people. Errors: some of
// the labels among the names and others not; labels of 2^31 and more that are not listed, or that
// float64 does not have exactly.
absl::StatusOr<NumberClasses> ClassesOfNumbers(std::span<const double> labels,
                                               const DataOptions& options);

// Refuses a list in which a class is twice.
absl::Status CheckNoneTwice(const std::vector<std::string>& class_names);

}  // namespace macaw::data
