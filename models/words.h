#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/status.h"

namespace macaw::models {

constexpr int64_t kMaxExtent = int64_t{1} << 24;  // larger sizes are taken for a mistake

inline absl::Status Wrong(absl::string_view message) { return absl::InvalidArgumentError(message); }

// Reads the words of a layer from left to right. Words that are left over at the end are an error.
class Words {
 public:
  explicit Words(absl::string_view text)
      : words_(absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {}

  std::string Kind() const { return words_.empty() ? "" : absl::AsciiStrToLower(words_[0]); }

  // The next positional number, at least 1.
  absl::StatusOr<int64_t> Number(absl::string_view meaning) {
    if (next_ >= words_.size()) return Wrong(absl::StrCat("the ", meaning, " is missing"));
    return Parse(words_[next_++], meaning, 1);
  }

  absl::StatusOr<double> Probability() {
    if (next_ >= words_.size()) return Wrong("the probability is missing");
    return ParseProbability(words_[next_++]);
  }

  // Reads an option such as "pad 2", which may stand anywhere after the positional numbers. Returns
  // `otherwise` when it is absent.
  absl::StatusOr<int64_t> Option(absl::string_view key, int64_t otherwise, int64_t least) {
    MACAW_ASSIGN_OR_RETURN(const std::string word, Take(key));
    if (word.empty()) return otherwise;
    return Parse(word, key, least);
  }

  // An option that must be there.
  absl::StatusOr<int64_t> Needed(absl::string_view key, int64_t least) {
    MACAW_ASSIGN_OR_RETURN(const int64_t value, Option(key, -1, least));
    if (value == -1) return Wrong(absl::StrCat("\"", key, " NUMBER\" is missing"));
    return value;
  }

  absl::StatusOr<double> ProbabilityOption(absl::string_view key, double otherwise) {
    MACAW_ASSIGN_OR_RETURN(const std::string word, Take(key));
    if (word.empty()) return otherwise;
    return ParseProbability(word);
  }

  bool Flag(absl::string_view key) {
    for (size_t i = next_; i < words_.size(); ++i) {
      if (words_[i] != key) continue;
      words_.erase(words_.begin() + i);
      return true;
    }
    return false;
  }

  absl::Status Done() const {
    if (next_ >= words_.size()) return absl::OkStatus();
    return Wrong(absl::StrCat("does not take \"", words_[next_], "\""));
  }

 private:
  // Takes an option's key and returns its value; empty if it is absent.
  absl::StatusOr<std::string> Take(absl::string_view key) {
    for (size_t i = next_; i < words_.size(); ++i) {
      if (words_[i] != key) continue;
      if (i + 1 >= words_.size()) return Wrong(absl::StrCat("\"", key, "\" needs a number"));
      const std::string value = words_[i + 1];
      words_.erase(words_.begin() + i, words_.begin() + i + 2);
      return value;
    }
    return std::string();
  }

  static absl::StatusOr<int64_t> Parse(const std::string& word, absl::string_view meaning,
                                       int64_t least) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(word, &value) || value < least || value > kMaxExtent) {
      return Wrong(absl::StrCat("the ", meaning, " is a whole number of at least ", least,
                                ", got \"", word, "\""));
    }
    return value;
  }

  static absl::StatusOr<double> ParseProbability(const std::string& word) {
    double p = 0;
    if (absl::SimpleAtod(word, &p) && p >= 0 && p < 1) return p;
    return Wrong(absl::StrCat("the probability is a number in [0, 1), got \"", word, "\""));
  }

  std::vector<std::string> words_;
  size_t next_ = 1;
};

}  // namespace macaw::models
