#include "cli/sweep/space.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/config/config.h"
#include "cli/config/key_error.h"
#include "core/digest.h"
#include "core/random.h"
#include "core/settings/section.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

const std::map<std::string, Axis::Kind>& Ranges() {
  static const auto* const ranges =
      new std::map<std::string, Axis::Kind>{{"uniform", Axis::Kind::kUniform},
                                            {"log_uniform", Axis::Kind::kLogUniform},
                                            {"integers", Axis::Kind::kIntegers},
                                            {"choice", Axis::Kind::kChoice}};
  return *ranges;
}

std::vector<std::string> RangeWords() {
  std::vector<std::string> words;
  for (const auto& [word, kind] : Ranges()) words.push_back(word);
  return words;
}

absl::Status WrongAxis(const Value& value, const std::string& key, absl::string_view message) {
  return WithKeyError(
      absl::InvalidArgumentError(absl::StrCat(value.place.text, ": ", key, message)),
      {.place = value.place.text, .key = key});
}

// Whether `path` is a key, and so no table of keys. An algorithm's parameter is one.
bool IsKey(const std::string& path) {
  const std::vector<Field>& fields = AllFields();
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  return (parts.size() == 3 && parts[0] == "algorithm") ||
         std::ranges::find(fields, path, &Field::key) != fields.end();
}

std::optional<double> NumberOf(const Value& value) {
  if (const int64_t* integer = value.As<int64_t>()) return static_cast<double>(*integer);
  const double* real = value.As<double>();
  return real != nullptr && std::isfinite(*real) ? std::optional(*real) : std::nullopt;
}

absl::Status CheckBounds(const Axis& axis, const Value& value, const Array& bounds,
                         const std::string& word) {
  const bool integers = axis.kind == Axis::Kind::kIntegers;
  const bool whole =
      bounds.size() == 2 && (!integers || (bounds[0].As<int64_t>() && bounds[1].As<int64_t>()));
  if (!whole || !NumberOf(bounds[0]).has_value() || !NumberOf(bounds[1]).has_value()) {
    return WrongAxis(value, axis.key,
                     absl::StrCat(": ", word, " takes [least, most], two ",
                                  integers ? "integers" : "numbers", ", found ", Describe(value)));
  }
  if (*NumberOf(bounds[0]) >= *NumberOf(bounds[1]))
    return WrongAxis(value, axis.key, absl::StrCat(": ", word, " needs least < most"));
  if (axis.kind == Axis::Kind::kLogUniform && *NumberOf(bounds[0]) <= 0)
    return WrongAxis(value, axis.key, absl::StrCat(": ", word, " needs least > 0"));
  return absl::OkStatus();
}

absl::StatusOr<Axis> RangeOf(const std::string& key, const std::string& word, const Value& value) {
  Axis axis;
  axis.key = key;
  axis.kind = Ranges().at(word);
  axis.place = value.place;
  const Array* const items = value.As<Array>();
  if (items == nullptr || items->empty()) {
    return WrongAxis(value, key,
                     absl::StrCat(": ", word, " takes a list, found ", Describe(value)));
  }
  if (axis.kind == Axis::Kind::kChoice) {
    axis.values = *items;
    return axis;
  }
  MACAW_RETURN_IF_ERROR(CheckBounds(axis, value, *items, word));
  axis.low = *NumberOf((*items)[0]);
  axis.high = *NumberOf((*items)[1]);
  return axis;
}

absl::Status ReadInto(std::vector<Axis>& axes, const std::string& path, const Value& value) {
  if (const Array* const values = value.As<Array>()) {
    if (values->empty()) return WrongAxis(value, path, " has no values");
    Axis axis;
    axis.key = path;
    axis.values = *values;
    axis.place = value.place;
    axes.push_back(std::move(axis));
    return absl::OkStatus();
  }
  const Table* const table = value.As<Table>();
  if (table == nullptr) {
    return WrongAxis(
        value, path,
        absl::StrCat(" takes a list of values, or a range such as {log_uniform = [0.001, "
                     "1]}, found ",
                     Describe(value), "; a single value belongs into the base"));
  }
  const bool range = table->size() == 1 && Ranges().contains(table->front().first);
  if (range) {
    MACAW_ASSIGN_OR_RETURN(Axis axis, RangeOf(path, table->front().first, table->front().second));
    axes.push_back(std::move(axis));
    return absl::OkStatus();
  }
  if (IsKey(path)) {
    const std::string given = table->empty() ? "" : table->front().first;
    const std::string meant = NearestWord(given, RangeWords());
    return WrongAxis(value, path,
                     absl::StrCat(": there is no range \"", given, "\"",
                                  meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"),
                                  " There are ", absl::StrJoin(RangeWords(), ", "), ", one a key"));
  }
  for (const auto& [name, inner] : *table)
    MACAW_RETURN_IF_ERROR(
        ReadInto(axes, path.empty() ? name : absl::StrCat(path, ".", name), inner));
  return absl::OkStatus();
}

// Keys that say the same thing in two ways would replace each other.
absl::Status CheckExclusive(const std::vector<Axis>& axes) {
  for (const Axis& axis : axes) {
    for (const Field& field : AllFields()) {
      if (field.key != axis.key) continue;
      for (const Axis& other : axes) {
        if (!settings::Contains(field.instead_of, other.key)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(axis.place.text, ": ", axis.key, " and ", other.key,
                         " say the same thing in two ways; give one of them"));
      }
    }
  }
  return absl::OkStatus();
}

// To six digits, unless these have too few numbers between the ends of the axis.
double Rounded(double value, const Axis& axis) {
  constexpr double kEnough = 100;
  const double largest = std::max(std::fabs(axis.low), std::fabs(axis.high));
  if (axis.high - axis.low < kEnough * 1e-5 * largest)
    return std::clamp(value, axis.low, axis.high);
  double rounded = value;
  (void)absl::SimpleAtod(absl::StrFormat("%.6g", value), &rounded);
  return std::clamp(rounded, axis.low, axis.high);
}

// The number at a place from 0 to 1 between the ends of the axis. They may be further apart than a
// number can say.
double UniformAt(const Axis& axis, double place) {
  const double apart = axis.high - axis.low;
  return std::isfinite(apart) ? axis.low + place * apart
                              : (1 - place) * axis.low + place * axis.high;
}

double LogUniformAt(const Axis& axis, double place) {
  const double ratio = axis.high / axis.low;
  return std::isfinite(ratio)
             ? axis.low * std::pow(ratio, place)
             : std::exp((1 - place) * std::log(axis.low) + place * std::log(axis.high));
}

Value Draw(const Axis& axis, uint32_t sample, uint64_t seed) {
  uint64_t name = 0;
  const Digest digest = DigestOf(absl::string_view(axis.key));
  std::memcpy(&name, digest.bytes.data(), sizeof(name));
  RandomStream stream(
      {.seed = seed, .purpose = Purpose::kSweep, .client = ClientId{sample}, .extra = name});
  Value value;
  switch (axis.kind) {
    case Axis::Kind::kGrid:
      break;
    case Axis::Kind::kChoice:
      return axis.values[stream.Below(axis.values.size())];
    case Axis::Kind::kUniform:
      value.data = Rounded(UniformAt(axis, stream.Uniform()), axis);
      break;
    case Axis::Kind::kLogUniform:
      value.data = Rounded(LogUniformAt(axis, stream.Uniform()), axis);
      break;
    case Axis::Kind::kIntegers:
      value.data =
          static_cast<int64_t>(axis.low) +
          static_cast<int64_t>(stream.Below(static_cast<uint64_t>(axis.high - axis.low) + 1));
      break;
  }
  value.place = axis.place;
  return value;
}

// A value that is a table sets several keys.
void Flatten(const std::string& key, const Value& value, Point& into) {
  const Table* const table = value.As<Table>();
  if (table == nullptr) {
    into.push_back({key, value});
    return;
  }
  for (const auto& [name, inner] : *table) {
    Value placed = inner;
    placed.place = value.place;
    Flatten(absl::StrCat(key, ".", name), placed, into);
  }
}

}  // namespace

absl::StatusOr<std::vector<Axis>> ReadAxes(const Table& keys) {
  std::vector<Axis> axes;
  MACAW_RETURN_IF_ERROR(ReadInto(axes, "", Value{keys}));
  MACAW_RETURN_IF_ERROR(CheckExclusive(axes));
  return axes;
}

std::vector<Point> PointsOf(const std::vector<Axis>& axes, uint32_t samples, uint64_t seed) {
  std::vector<Point> points = {Point()};
  const auto extend = [&](const auto& values_of) {
    std::vector<Point> longer;
    for (const Point& point : points) {
      for (const Point& rest : values_of()) {
        longer.push_back(point);
        longer.back().insert(longer.back().end(), rest.begin(), rest.end());
      }
    }
    points = std::move(longer);
  };
  bool random = false;
  for (const Axis& axis : axes) {
    random = random || axis.random();
    if (axis.random()) continue;
    extend([&] {
      std::vector<Point> values;
      for (const Value& value : axis.values) values.push_back({{axis.key, value}});
      return values;
    });
  }
  if (!random) return points;
  extend([&] {
    std::vector<Point> draws;
    for (uint32_t sample = 0; sample < samples; ++sample) {
      Point& draw = draws.emplace_back();
      for (const Axis& axis : axes) {
        if (axis.random()) draw.push_back({axis.key, Draw(axis, sample, seed)});
      }
    }
    return draws;
  });
  // The order of the axes.
  for (Point& point : points) {
    std::ranges::sort(point, {}, [&](const settings::Setting& setting) {
      return std::ranges::find(axes, setting.key, &Axis::key) - axes.begin();
    });
  }
  return points;
}

Point WithoutTables(const Point& point) {
  Point flat;
  for (const settings::Setting& setting : point) Flatten(setting.key, setting.value, flat);
  return flat;
}

const std::string* WordAt(const Point& point, absl::string_view key) {
  const auto found = std::ranges::find(point, key, &settings::Setting::key);
  return found == point.end() ? nullptr : found->value.As<std::string>();
}

std::vector<std::string> KeysOf(const std::vector<Point>& points) {
  std::vector<std::string> keys;
  for (const Point& point : points) {
    for (const settings::Setting& setting : point) {
      if (!settings::Contains(keys, setting.key)) keys.push_back(setting.key);
    }
  }
  return keys;
}

}  // namespace macaw::cli
