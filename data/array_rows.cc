#include "data/array_rows.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "data/column_spread.h"

namespace macaw::data {
namespace {

// Why a number of an array is none in float32.
const char* WhyNoFloat(double value) {
  return std::isfinite(value) ? "that is beyond float32, whose numbers end at 3.4e38"
                              : "that is not finite";
}

// Appends the values of all rows, and calls convert(element) for each in the order of the dataset.
// Where that gives nothing, the error says wrong(element).
template <typename T, typename Convert, typename Wrong>
absl::Status AppendValues(const StoredArray& x, const RowShape& shape, std::vector<T>& values,
                          const Convert& convert, const Wrong& wrong) {
  const uint64_t width = x.row_elements();
  const uint64_t channels = shape.channels_last ? static_cast<uint64_t>(shape.input_shape[0]) : 1;
  const uint64_t plane = width / channels;
  // A file may have one array, which is stored in the memory it needs, or one for each of thousands
  // of clients.
  const size_t needed = values.size() + x.rows() * width;
  if (needed > values.capacity()) values.reserve(std::max(needed, 2 * values.capacity()));
  for (uint64_t row = 0; row < x.rows(); ++row) {
    for (uint64_t c = 0; c < channels; ++c) {
      for (uint64_t i = 0; i < plane; ++i) {
        const uint64_t element = row * width + i * channels + c;
        const std::optional<T> value = convert(element);
        if (!value.has_value()) {
          return RefuseArray(x, absl::StrCat("has a value in row ", row, " ", wrong(element)));
        }
        values.push_back(*value);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RowShape> ShapeOfRows(const StoredArray& x, bool images) {
  if (x.shape.size() < 2 || x.rows() == 0 || x.row_elements() == 0)
    return RefuseArray(x, "needs rows and at least one axis of features, none of them 0");
  RowShape shape;
  for (size_t axis = 1; axis < x.shape.size(); ++axis)
    shape.input_shape.push_back(static_cast<int64_t>(x.shape[axis]));
  std::vector<int64_t>& s = shape.input_shape;
  const bool tokens = x.is_integer() && x.item >= 4;
  if (tokens && s.size() > 1)
    return RefuseArray(x,
                       "is of integers and of more than two axes: tokens are one list a row, and "
                       "pixels are uint8 or float32");
  if (s.size() == 2 && (x.kind == 'u' || images)) s.insert(s.begin(), 1);  // grey images
  if (s.size() == 3 && s[0] > 4 && s[2] <= 4) {
    shape.channels_last = true;
    s = {s[2], s[0], s[1]};
  }
  return shape;
}

absl::Status AppendFeatures(const StoredArray& x, const RowShape& shape, ExampleStore& store) {
  if (x.kind == 'u' && x.item == 1) {
    return AppendValues(
        x, shape, store.bytes,
        [&](uint64_t i) { return std::optional(static_cast<uint8_t>(x.data[i])); },
        [](uint64_t) { return ""; });
  }
  if (x.kind == 'f') {
    return AppendValues(
        x, shape, store.floats,
        [&](uint64_t i) {
          const auto value = static_cast<float>(FloatAt(x, i));
          return std::isfinite(value) ? std::optional(value) : std::nullopt;
        },
        [&](uint64_t i) { return WhyNoFloat(FloatAt(x, i)); });
  }
  if (x.is_integer() && x.item >= 4) {
    return AppendValues(
        x, shape, store.tokens,
        [&](uint64_t i) {
          const int64_t token = IntegerAt(x, i);
          const bool fits = token >= 0 && token <= INT32_MAX;
          return fits ? std::optional(static_cast<int32_t>(token)) : std::nullopt;
        },
        [](uint64_t) { return "that is no token (0 … 2147483647)"; });
  }
  return RefuseArray(x,
                     absl::StrCat("is ", x.TypeName(),
                                  "; features are uint8, float32 or float64, and tokens int32 or "
                                  "int64: convert it with astype"));
}

std::string NoteOnSpread(const StoredArray& x) {
  constexpr uint64_t kColumnsAtOnce = 1024;
  if (x.kind != 'f' || x.item != sizeof(double) || x.shape.size() != 2) return "";
  const uint64_t width = x.row_elements();
  for (uint64_t begin = 0; begin < width; begin += kColumnsAtOnce) {
    std::vector<ColumnSpread> columns(std::min(kColumnsAtOnce, width - begin));
    for (uint64_t row = 0; row < x.rows(); ++row) {
      for (uint64_t i = 0; i < columns.size(); ++i)
        columns[i].Add(FloatAt(x, row * width + begin + i));
    }
    for (uint64_t i = 0; i < columns.size(); ++i) {
      std::string note = columns[i].Note(absl::StrCat("column ", begin + i, " of x"));
      if (!note.empty()) return note;
    }
  }
  return "";
}

std::string NoteOnTargets(const StoredArray& y) {
  if (y.kind != 'f' || y.item != sizeof(double)) return "";
  ColumnSpread spread;
  for (uint64_t row = 0; row < y.rows(); ++row) spread.Add(FloatAt(y, row));
  return spread.Note("y");
}

absl::Status AppendLabels(const StoredArray& y, uint64_t rows, ExampleStore& store) {
  if (y.shape.empty() || y.rows() != rows || y.row_elements() != 1) {
    return RefuseArray(
        y, absl::StrCat("must have one label for each of ", rows, " rows, but its shape is [",
                        absl::StrJoin(y.shape, ", "), "]"));
  }
  if (!y.is_integer() && y.kind != 'f') {
    return RefuseArray(
        y, absl::StrCat("is ", y.TypeName(),
                        "; labels are integers (classes) or floats (numbers to predict)"));
  }
  for (uint64_t i = 0; i < rows; ++i) {
    if (y.is_integer()) {
      const int64_t label = IntegerAt(y, i);
      if (label < 0 || label > INT32_MAX)
        return RefuseArray(
            y, absl::StrCat("has label ", label, " in row ", i, "; classes count from 0"));
      store.classes.push_back(static_cast<int32_t>(label));
    } else {
      const auto target = static_cast<float>(FloatAt(y, i));
      if (!std::isfinite(target))
        return RefuseArray(y,
                           absl::StrCat("has a label in row ", i, " ", WhyNoFloat(FloatAt(y, i))));
      store.targets.push_back(target);
    }
  }
  return absl::OkStatus();
}

}  // namespace macaw::data
