#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/settings/value.h"

namespace macaw::settings {

// The keys of a configuration, listed once. A struct with settings has a function that returns its
// Section: one Add a member, with its name, meaning, range and role. Everything that must know the
// keys walks this list: the TOML reader and writer, the help, "did you mean", the fingerprint of a
// run, the wire, the rules of what a resumed run may change. So a new key is a member and an Add.

// What a setting decides.
enum class Role : uint8_t {
  kResult,   // the bits of the result: a run that goes on keeps it
  kLength,   // when the run ends, and nothing before: a run that goes on may change it
  kCompute,  // where and how fast the run is computed, and never its result: may change
  kDerived,  // follows from the data or from a file that another key names; filled in
  kLabel,    // a name for people, or a place in the file system
};

// A closed interval of numbers unless an end is said to be open.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false, open_most = false;

  bool Holds(double x) const {
    return std::isfinite(x) && (open_least ? x > least : x >= least) &&
           (open_most ? x < most : x <= most);
  }
  std::string Text(absl::string_view noun) const;  // "a number in [0, 1)"
};
constexpr Range AtLeast(double x) { return {.least = x}; }
constexpr Range Above(double x) { return {.least = x, .open_least = true}; }
constexpr Range Between(double x, double y) { return {.least = x, .most = y}; }
constexpr Range Below(double x, double y) { return {.least = x, .most = y, .open_most = true}; }
constexpr Range AboveUpTo(double x, double y) {
  return {.least = x, .most = y, .open_least = true};
}

inline bool Contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What else must be so for a key of a struct S to have an effect.
template <typename S>
struct Need {
  std::function<bool(const S&)> holds;
  std::string words;  // completes "local.nesterov has no effect without …"
};

// The first need that does not hold; null: all hold, and the key has an effect.
template <typename S>
const Need<S>* Missing(const std::vector<Need<S>>& needs, const S& section) {
  for (const Need<S>& need : needs) {
    if (!need.holds(section)) return &need;
  }
  return nullptr;
}

// For people: "local.optimizer = \"sgd\", local.momentum above 0"; "" without needs.
template <typename S>
std::string NeedsText(const std::vector<Need<S>>& needs) {
  return absl::StrJoin(
      needs, ", ", [](std::string* out, const Need<S>& need) { absl::StrAppend(out, need.words); });
}

// The value of a seed that is run.seed, which replaces a number that the file has.
inline constexpr char kRunsSeed[] = "run";

// One key of a struct S.
template <typename S>
struct Field {
  std::string key;       // within its section: "lr", "lr_schedule.kind"
  std::string help;      // one line: unit and effect
  std::string expected;  // "a number > 0"; completes "local.lr must be …"
  Role role = Role::kResult;
  bool is_path = false;  // a relative path starts at the folder of the file that contains it
  bool is_seed = false;  // equals run.seed unless it is given
  bool in_file = true;   // false: no key of the file, only of what nodes tell each other
  // The words that a choice takes, for "did you mean"; of a path, words that are not paths.
  std::vector<std::string> choices;
  // Other keys of the section for the same thing. A source of settings (a file, all of --set) gives
  // one of them, and one that --set gives replaces the file's.
  std::vector<std::string> instead_of;

  // Sets the value. Returns false and changes nothing if the value is not what `expected` says.
  std::function<bool(S&, const Value&)> set;
  // Nothing if it is not set: an optional without a value, an empty text or list.
  std::function<std::optional<Value>(const S&)> get;
  std::function<void(S&)> reset;         // back to the default
  std::function<bool(const S&)> hidden;  // while true, files leave it out; empty: never
  // The key has an effect only while all of these hold; empty: always. While one does not, files
  // leave the key out, and giving it is an error that says what is missing.
  std::vector<Need<S>> needs;

  bool Excludes(const Field& other) const {
    return Contains(instead_of, other.key) || Contains(other.instead_of, key);
  }
  bool Applies(const S& section) const { return Missing(needs, section) == nullptr; }
  // The value that a file has, and nothing if it leaves the key out.
  std::optional<Value> Shown(const S& section) const {
    return !Applies(section) || (hidden && hidden(section)) ? std::nullopt : get(section);
  }

  // For the lists of keys.
  Field& As(Role r) { return (role = r, *this); }
  Field& Hidden(std::function<bool(const S&)> when) { return (hidden = std::move(when), *this); }
  Field& Expecting(std::string what) { return (expected = std::move(what), *this); }
  Field& OrWord(std::string word) { return (choices.push_back(std::move(word)), *this); }
  Field& InsteadOf(std::vector<std::string> keys) { return (instead_of = std::move(keys), *this); }
  Field& Needs(std::function<bool(const S&)> holds, std::string words) {
    return (needs.push_back({std::move(holds), std::move(words)}), *this);
  }
};

// ---- reading and writing one value

// TOML's integers have 64 bits and a sign; the range is also that of the member's type.
template <typename T>
std::optional<T> Read(const Value& value, const Range& range) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool* flag = value.As<bool>();
    return flag == nullptr ? std::nullopt : std::optional<bool>(*flag);
  } else if constexpr (std::is_same_v<T, std::string>) {
    const std::string* text = value.As<std::string>();
    return text == nullptr ? std::nullopt : std::optional<std::string>(*text);
  } else if constexpr (std::is_floating_point_v<T>) {
    const double* real = value.As<double>();
    const int64_t* integer = value.As<int64_t>();
    if (real == nullptr && integer == nullptr) return std::nullopt;
    const double number = real != nullptr ? *real : static_cast<double>(*integer);
    return range.Holds(number) ? std::optional<double>(number) : std::nullopt;
  } else {
    const int64_t* number = value.As<int64_t>();
    const bool fits =
        number != nullptr && *number >= 0 && range.Holds(static_cast<double>(*number)) &&
        static_cast<uint64_t>(*number) <= static_cast<uint64_t>(std::numeric_limits<T>::max());
    return fits ? std::optional<T>(static_cast<T>(*number)) : std::nullopt;
  }
}

template <typename T>
Value Write(const T& value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return Value{static_cast<int64_t>(value)};
  } else {
    return Value{value};
  }
}

// "a number > 0", "true or false", "a string"
template <typename T>
std::string NounOf(const Range& range) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  return range.Text(std::is_floating_point_v<T> ? "a number" : "an integer");
}

std::string QuotedChoices(const std::vector<std::string>& words);  // "\"a\" | \"b\""

// ---- the list

template <typename S>
class Section {
 public:
  // A value: bool, a number, a string, or an optional one of these.
  template <typename T>
  Field<S>& Add(std::string key, T S::*member, std::string help, Range range = {}) {
    return Put(
        key, NounOf<T>(range), help, member,
        [member, range](S& s, const Value& value) {
          std::optional<T> read = Read<T>(value, range);
          if (read.has_value()) s.*member = *std::move(read);
          return read.has_value();
        },
        [member](const S& s) -> std::optional<Value> {
          if constexpr (std::is_same_v<T, std::string>) {
            if ((s.*member).empty()) return std::nullopt;
          }
          return Write(s.*member);
        });
  }

  template <typename T>
  Field<S>& Add(std::string key, std::optional<T> S::*member, std::string help, Range range = {}) {
    return Put(
        key, NounOf<T>(range), help, member,
        [member, range](S& s, const Value& value) {
          std::optional<T> read = Read<T>(value, range);
          if (read.has_value()) s.*member = std::move(read);
          return read.has_value();
        },
        [member](const S& s) -> std::optional<Value> {
          if (!(s.*member).has_value()) return std::nullopt;
          return Write(*(s.*member));
        });
  }

  // A list of values.
  template <typename T>
  Field<S>& Add(std::string key, std::vector<T> S::*member, std::string help, Range range = {}) {
    const absl::string_view noun = std::is_same_v<T, std::string> ? "strings"
                                   : std::is_same_v<T, double>    ? "numbers"
                                                                  : "integers";
    return Put(
        key, range.Text(absl::StrCat("a list of ", noun)), help, member,
        [member, range](S& s, const Value& value) {
          const Array* array = value.As<Array>();
          if (array == nullptr) return false;
          std::vector<T> items;
          for (const Value& item : *array) {
            std::optional<T> read = Read<T>(item, range);
            if (!read.has_value()) return false;
            items.push_back(*std::move(read));
          }
          s.*member = std::move(items);
          return true;
        },
        [member](const S& s) -> std::optional<Value> {
          if ((s.*member).empty()) return std::nullopt;
          Array array;
          for (const T& item : s.*member) array.push_back(Write(item));
          return Value{std::move(array)};
        });
  }

  // One word of a list.
  Field<S>& AddChoice(std::string key, std::string S::*member,
                      const std::vector<std::string>& words, std::string help) {
    Field<S>& field = Add(std::move(key), member, std::move(help));
    field.expected = QuotedChoices(words);
    field.set = [member, words](S& s, const Value& value) {
      const std::string* word = value.As<std::string>();
      if (word == nullptr || !Contains(words, *word)) return false;
      s.*member = *word;
      return true;
    };
    field.choices = words;
    return field;
  }

  // A list of such words.
  Field<S>& AddWords(std::string key, std::vector<std::string> S::*member,
                     const std::vector<std::string>& words, std::string help) {
    Field<S>& field = Add(std::move(key), member, std::move(help));
    field.expected = absl::StrCat("a list of ", QuotedChoices(words));
    field.set = [set = field.set, words](S& s, const Value& value) {
      const Array* array = value.As<Array>();
      if (array == nullptr) return false;
      for (const Value& item : *array) {
        const std::string* word = item.As<std::string>();
        if (word == nullptr || !Contains(words, *word)) return false;
      }
      return set(s, value);
    };
    field.choices = words;
    return field;
  }

  // The same as AddChoice for an enumeration: its enumerators and their words.
  template <typename E>
  Field<S>& AddChoice(std::string key, E S::*member, std::vector<std::pair<std::string, E>> words,
                      std::string help) {
    std::vector<std::string> choices;
    for (const auto& [word, enumerator] : words) choices.push_back(word);
    Field<S>& field = Put(
        key, QuotedChoices(choices), help, member,
        [member, words](S& s, const Value& value) {
          const std::string* given = value.As<std::string>();
          for (const auto& [word, enumerator] : words) {
            if (given == nullptr || *given != word) continue;
            s.*member = enumerator;
            return true;
          }
          return false;
        },
        [member, words](const S& s) -> std::optional<Value> {
          for (const auto& [word, enumerator] : words) {
            if (s.*member == enumerator) return Value{word};
          }
          return std::nullopt;
        });
    field.choices = std::move(choices);
    return field;
  }

  // A file or folder.
  Field<S>& AddPath(std::string key, std::string S::*member, std::string help) {
    Field<S>& field = Add(std::move(key), member, std::move(help)).Expecting("a path (a string)");
    field.is_path = true;
    return field.As(Role::kLabel);
  }

  // A seed of its own; or kRunsSeed, as if it were not given.
  Field<S>& AddSeed(std::string key, uint64_t S::*member, std::string help) {
    Field<S>& field = Add(std::move(key), member, std::move(help), AtLeast(0));
    field.is_seed = true;
    field.expected += absl::StrCat(" | \"", kRunsSeed, "\"");
    // The reader of a configuration lets the seed follow.
    field.set = [set = field.set](S& s, const Value& value) {
      return value == Value{std::string(kRunsSeed)} || set(s, value);
    };
    return field;
  }

  // The fields of a member that is a section itself. `prefix`: "" or the name of its table.
  template <typename Sub>
  void AddSection(absl::string_view prefix, Sub S::*member, const Section<Sub>& section) {
    const auto whole = [prefix](const std::string& key) {
      return prefix.empty() ? key : absl::StrCat(prefix, ".", key);
    };
    for (const Field<Sub>& sub : section.fields()) {
      Field<S>& field = fields_.emplace_back();
      field.key = whole(sub.key);
      field.help = sub.help;
      field.expected = sub.expected;
      field.role = sub.role;
      field.is_path = sub.is_path;
      field.is_seed = sub.is_seed;
      field.in_file = sub.in_file;
      field.choices = sub.choices;
      for (const std::string& other : sub.instead_of) field.instead_of.push_back(whole(other));
      field.set = [set = sub.set, member](S& s, const Value& value) {
        return set(s.*member, value);
      };
      field.get = [get = sub.get, member](const S& s) { return get(s.*member); };
      field.reset = [reset = sub.reset, member](S& s) { reset(s.*member); };
      const auto lift = [member](const std::function<bool(const Sub&)>& test) {
        return !test ? std::function<bool(const S&)>()
                     : [test, member](const S& s) { return test(s.*member); };
      };
      field.hidden = lift(sub.hidden);
      for (const Need<Sub>& need : sub.needs) field.Needs(lift(need.holds), need.words);
    }
  }

  const std::vector<Field<S>>& fields() const { return fields_; }
  std::vector<Field<S>>& fields() { return fields_; }

 private:
  template <typename T>
  Field<S>& Put(const std::string& key, const std::string& expected, const std::string& help,
                T S::*member, std::function<bool(S&, const Value&)> set,
                std::function<std::optional<Value>(const S&)> get) {
    Field<S>& field = fields_.emplace_back();
    field.key = key;
    field.help = help;
    field.expected = expected;
    field.set = std::move(set);
    field.get = std::move(get);
    field.reset = [member](S& s) {
      const S defaults;
      s.*member = defaults.*member;
    };
    return field;
  }

  std::vector<Field<S>> fields_;  // in the order of a file
};

}  // namespace macaw::settings
