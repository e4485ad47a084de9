#include "codecs/line.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macaw::codecs {

Line::Line(absl::string_view text)
    : text_(text), words_(absl::StrSplit(text, ' ', absl::SkipEmpty())) {
  name_ = Next();
}

std::string Line::Next() { return at_ < words_.size() ? words_[at_++] : ""; }

bool Line::Take(absl::string_view word) {
  if (at_ == words_.size() || words_[at_] != word) return false;
  ++at_;
  return true;
}

absl::StatusOr<double> Line::Number(absl::string_view what, double most) {
  const std::string word = Next();
  double number = 0;
  if (absl::SimpleAtod(word, &number) && number > 0 && number <= most && std::isfinite(number))
    return number;
  const std::string range = std::isfinite(most) ? absl::StrCat("in (0, ", most, "]") : "above 0";
  return Refuse(absl::StrCat(what, " must be a number ", range,
                             word.empty() ? ", and is missing" : absl::StrCat(", not ", word)));
}

absl::StatusOr<uint64_t> Line::Whole(absl::string_view what, uint64_t least, uint64_t most) {
  const std::string word = Next();
  uint64_t number = 0;
  if (absl::SimpleAtoi(word, &number) && number >= least && number <= most) return number;
  return Refuse(absl::StrCat(what, " must be a whole number from ", least, " to ", most,
                             word.empty() ? ", and is missing" : absl::StrCat(", not ", word)));
}

absl::Status Line::End(absl::string_view takes) const {
  if (at_ == words_.size()) return absl::OkStatus();
  return Refuse(absl::StrCat("'", words_[at_], "' is too much; write ", takes));
}

absl::Status Line::Refuse(absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat("codec \"", text_, "\": ", why));
}

}  // namespace macaw::codecs
