#include "core/settings/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace macaw::settings {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04X", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The shortest text that parses to the same double and is recognisable as a float.
std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

struct TomlPrinter {
  std::string operator()(std::monostate) const { return "\"\""; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return FloatText(value); }
  std::string operator()(const std::string& value) const { return Quoted(value); }
  std::string operator()(const Array& values) const {
    return absl::StrCat("[",
                        absl::StrJoin(values, ", ",
                                      [](std::string* out, const Value& value) {
                                        absl::StrAppend(out, ToToml(value));
                                      }),
                        "]");
  }
  std::string operator()(const Table& table) const {
    return absl::StrCat("{",
                        absl::StrJoin(table, ", ",
                                      [](std::string* out, const auto& entry) {
                                        absl::StrAppend(out, TomlKey(entry.first), " = ",
                                                        ToToml(entry.second));
                                      }),
                        "}");
  }
};

}  // namespace

std::string ToToml(const Value& value) { return std::visit(TomlPrinter{}, value.data); }

std::string TomlKey(absl::string_view key) {
  const auto bare = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  return !key.empty() && std::all_of(key.begin(), key.end(), bare) ? std::string(key) : Quoted(key);
}

std::string Describe(const Value& value) {
  if (value.As<std::monostate>() != nullptr) return "a date or time";
  if (value.As<Table>() != nullptr) return "a table";
  std::string text = ToToml(value);
  constexpr size_t kLongest = 60;
  if (text.size() > kLongest) text = absl::StrCat(text.substr(0, kLongest), "…");
  return text;
}

}  // namespace macaw::settings
