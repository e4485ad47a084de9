#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/settings/section.h"

namespace macaw::settings {

// A value that `field` accepts and that differs from its value in `section`; nothing if none was
// found. Tests use it to walk over every key, including keys that are added later.
template <typename S>
std::optional<Value> OtherValue(const Field<S>& field, const S& section) {
  std::vector<Value> candidates;
  for (const std::string& choice : field.choices) {
    candidates.push_back(Value{choice});
    candidates.push_back(Value{Array{Value{choice}}});
  }
  for (const int64_t integer : {3, 1, 0}) {
    candidates.push_back(Value{integer});
    candidates.push_back(Value{Array{Value{integer}}});
  }
  for (const double real : {0.375, 2.5}) {
    candidates.push_back(Value{real});
    candidates.push_back(Value{Array{Value{real}}});
  }
  for (const bool flag : {true, false}) candidates.push_back(Value{flag});
  for (const char* text : {"/a/word", "22:00-06:00", ";"}) {
    candidates.push_back(Value{std::string(text)});
    candidates.push_back(Value{Array{Value{std::string(text)}}});
  }
  for (const Value& candidate : candidates) {
    S changed = section;
    if (!field.set(changed, candidate)) continue;
    const std::optional<Value> now = field.get(changed);
    if (now.has_value() && now != field.get(section)) return candidate;
  }
  return std::nullopt;
}

}  // namespace macaw::settings
