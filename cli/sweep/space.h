#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/config/toml.h"
#include "core/settings/value.h"

namespace macaw::cli {

// What one key of a sweep takes: each value of a list, or values drawn at random.
struct Axis {
  enum class Kind : uint8_t { kGrid, kUniform, kLogUniform, kIntegers, kChoice };

  std::string key;  // "local.lr"; of a list of tables the table's name: "algorithm"
  Kind kind = Kind::kGrid;
  std::vector<Value> values;  // kGrid, kChoice
  double low = 0, high = 0;   // of the ranges; both ends may be drawn
  settings::Place place;

  bool random() const { return kind != Kind::kGrid; }
};

// A configuration of a sweep: a value for each axis, in their order.
using Point = std::vector<settings::Setting>;

// The axes that the table [keys] of a sweep file describes, in the order of the file's parser (by
// name). A list is a grid; {uniform = [a, b]}, {log_uniform = [a, b]}, {integers = [a, b]} and
// {choice = [...]} are drawn. Errors name the line and the key.
absl::StatusOr<std::vector<Axis>> ReadAxes(const Table& keys);

// Every combination of the grid's values, the last axis changing fastest; with random axes each of
// them `samples` times, with the same draws for each combination. A draw depends on the seed, the
// number of the sample and the key alone, so other axes and more samples do not change it. Numbers
// of ranges have six significant digits.
std::vector<Point> PointsOf(const std::vector<Axis>& axes, uint32_t samples, uint64_t seed);

// The point with the keys of its tables in their place: algorithm = {name = "fedprox"} sets
// algorithm.name.
Point WithoutTables(const Point& point);

// The word that the point gives a key; null: it gives none.
const std::string* WordAt(const Point& point, absl::string_view key);
// The keys of all points, each once.
std::vector<std::string> KeysOf(const std::vector<Point>& points);

}  // namespace macaw::cli
