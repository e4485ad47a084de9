#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace macaw::server {

// What the bytes of a value consist of: the names and kinds of its fields, in their order. A file
// of values begins with its format, so that a program of another release finds the fields that it
// knows by their names.
struct Format {
  enum class Kind : uint8_t {
    kNumber,
    kReal,
    kText,
    kDigest,
    kFence,
    kAttempt,
    kList,
    kMessage,
  };
  Kind kind = Kind::kNumber;
  std::vector<std::string> names;  // of a message's fields
  std::vector<Format> parts;       // the message's fields, or the one format of a list's items
  friend bool operator==(const Format&, const Format&) = default;
};

// Such as "{node:number,rows:[real]}".
std::string TextOf(const Format& format);
// Nothing if the text is none, or has a kind that this program does not know.
std::optional<Format> ParseFormat(absl::string_view text);

}  // namespace macaw::server
