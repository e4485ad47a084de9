#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/fields.h"

// Accesses a member of a Config, constant or mutable.
#define AT(member) \
  [](auto& c) -> auto& { return c.member; }

// How the kinds of fields are read, checked and written. Used by fields.cc and special_fields.cc
// only.
namespace macaw::cli {

// A closed interval unless an end is said to be open.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false, open_most = false;

  bool Holds(double x) const {
    return std::isfinite(x) && (open_least ? x > least : x >= least) &&
           (open_most ? x < most : x <= most);
  }
  std::string Text(absl::string_view noun) const {
    const bool below = std::isfinite(most), above = std::isfinite(least);
    if (above && below) {
      return absl::StrCat(noun, " in ", open_least ? "(" : "[", least, ", ", most,
                          open_most ? ")" : "]");
    }
    if (above) return absl::StrCat(noun, open_least ? " > " : " >= ", least);
    if (below) return absl::StrCat(noun, open_most ? " < " : " <= ", most);
    return std::string(noun);
  }
};

constexpr Range AtLeast(double x) { return {.least = x}; }
constexpr Range Above(double x) { return {.least = x, .open_least = true}; }
constexpr Range Between(double x, double y) { return {.least = x, .most = y}; }
constexpr Range UpTo(double x, double y) {
  return {.least = x, .most = y, .open_most = true};
}  // [x, y)

// TOML's integers are signed and have 64 bits; the range of ours is that of their type.
template <typename T>
std::optional<T> ToInteger(const Value& value, const Range& range) {
  const int64_t* number = value.As<int64_t>();
  if (number == nullptr || *number < 0 || !range.Holds(static_cast<double>(*number)))
    return std::nullopt;
  if (static_cast<uint64_t>(*number) > static_cast<uint64_t>(std::numeric_limits<T>::max()))
    return std::nullopt;
  return static_cast<T>(*number);
}

inline std::optional<double> ToNumber(const Value& value, const Range& range) {
  double number;
  if (const double* real = value.As<double>()) {
    number = *real;
  } else if (const int64_t* integer = value.As<int64_t>()) {
    number = static_cast<double>(*integer);
  } else {
    return std::nullopt;
  }
  return range.Holds(number) ? std::optional<double>(number) : std::nullopt;
}

template <typename T>
std::optional<T> Read(const Value& value, const Range& range) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool* flag = value.As<bool>();
    return flag == nullptr ? std::nullopt : std::optional<bool>(*flag);
  } else if constexpr (std::is_integral_v<T>) {
    return ToInteger<T>(value, range);
  } else if constexpr (std::is_same_v<T, double>) {
    return ToNumber(value, range);
  } else {
    static_assert(std::is_same_v<T, std::string>);
    const std::string* text = value.As<std::string>();
    return text == nullptr ? std::nullopt : std::optional<std::string>(*text);
  }
}

template <typename T>
Value Write(const T& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double> ||
                std::is_same_v<T, std::string>) {
    return Value{value};
  } else {
    return Value{static_cast<int64_t>(value)};
  }
}

template <typename T>
std::string Noun() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  return "an integer";
}

// A plain field. `at` is a function from a Config to the member; a lambda `[](auto& c) -> auto& { …
// }` serves both constant and mutable ones.
template <typename At>
Field Plain(std::string path, At at, std::string help, Range range = {}) {
  using T = std::remove_cvref_t<decltype(at(std::declval<Config&>()))>;
  Field field{.path = std::move(path), .help = std::move(help)};
  field.expected =
      std::is_arithmetic_v<T> && !std::is_same_v<T, bool> ? range.Text(Noun<T>()) : Noun<T>();
  field.set = [at, range](Config& config, const Value& value) {
    const std::optional<T> read = Read<T>(value, range);
    if (read.has_value()) at(config) = *read;
    return read.has_value();
  };
  field.get = [at](const Config& config) -> std::optional<Value> {
    if constexpr (std::is_same_v<T, std::string>) {
      if (at(config).empty()) return std::nullopt;
    }
    return Write(at(config));
  };
  field.reset = [at](Config& config) {
    const Config defaults;
    at(config) = at(defaults);
  };
  return field;
}

// A list of such values; an empty list is left out of the effective file.
template <typename At>
Field List(std::string path, At at, std::string help, Range range = {}) {
  using T = typename std::remove_cvref_t<decltype(at(std::declval<Config&>()))>::value_type;
  Field field{.path = std::move(path), .help = std::move(help)};
  const absl::string_view noun = std::is_same_v<T, std::string> ? "strings"
                                 : std::is_same_v<T, double>    ? "numbers"
                                                                : "integers";
  field.expected = range.Text(absl::StrCat("a list of ", noun));
  field.set = [at, range](Config& config, const Value& value) {
    const Array* array = value.As<Array>();
    if (array == nullptr) return false;
    std::vector<T> items;
    for (const Value& item : *array) {
      const std::optional<T> read = Read<T>(item, range);
      if (!read.has_value()) return false;
      items.push_back(*read);
    }
    at(config) = std::move(items);
    return true;
  };
  field.get = [at](const Config& config) -> std::optional<Value> {
    if (at(config).empty()) return std::nullopt;
    Array array;
    for (const T& item : at(config)) array.push_back(Write(item));
    return Value{std::move(array)};
  };
  field.reset = [at](Config& config) { at(config).clear(); };
  return field;
}

// One word of a list.
template <typename At>
Field Choice(std::string path, At at, std::vector<std::string> choices, std::string help) {
  Field field = Plain(std::move(path), at, std::move(help));
  field.expected = absl::StrJoin(choices, " | ", [](std::string* out, const std::string& choice) {
    absl::StrAppend(out, "\"", choice, "\"");
  });
  field.set = [at, choices](Config& config, const Value& value) {
    const std::string* word = value.As<std::string>();
    if (word == nullptr) return false;
    for (const std::string& choice : choices) {
      if (*word == choice) {
        at(config) = *word;
        return true;
      }
    }
    return false;
  };
  field.choices = std::move(choices);
  return field;
}

// A file or folder.
template <typename At>
Field Path(std::string path, At at, std::string help) {
  Field field = Plain(std::move(path), at, std::move(help));
  field.is_path = true;
  field.expected = "a path (a string)";
  return field;
}

// The field is left out of the effective file while `hidden` is true.
template <typename Hidden>
Field HiddenIf(Field field, Hidden hidden) {
  field.get = [get = std::move(field.get), hidden](const Config& config) -> std::optional<Value> {
    return hidden(config) ? std::nullopt : get(config);
  };
  return field;
}

// The field has an effect only while `applies` is true. To set it otherwise is an error; `needs`
// says in words what it requires.
template <typename Applies>
Field Needing(const std::string& needs, Applies applies, Field field) {
  field.applies = applies;
  field.needs = needs;
  return field;
}

}  // namespace macaw::cli
