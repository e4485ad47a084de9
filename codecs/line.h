#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::codecs {

// The words of one line, from left to right: a codec's name and its arguments. One thread.
class Line {
 public:
  explicit Line(absl::string_view text);

  const std::string& name() const { return name_; }
  // Passes the next word if it is this one.
  bool Take(absl::string_view word);
  // The next word as a number in (0, most], or as a whole number in [least, most]. `what` it is,
  // for messages: "the fraction".
  absl::StatusOr<double> Number(absl::string_view what, double most);
  absl::StatusOr<uint64_t> Whole(absl::string_view what, uint64_t least, uint64_t most);
  // Refuses words that are left over; `takes` says what the line may be.
  absl::Status End(absl::string_view takes) const;
  absl::Status Refuse(absl::string_view why) const;

 private:
  std::string Next();  // "" at the end

  const std::string text_;
  std::string name_;
  std::vector<std::string> words_;
  size_t at_ = 0;
};

}  // namespace macaw::codecs
