#include "data/examples.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "data/column_spread.h"

namespace macaw::data {
namespace {
constexpr int64_t kMostClasses = 1 << 24;
constexpr size_t kMostListed = 10;

// data.class_names = ["1", "2"]
std::string ListedAs(std::span<const double> labels) {
  const auto quoted = [](std::string* out, double label) {
    absl::StrAppend(out, "\"", static_cast<int64_t>(label), "\"");
  };
  return absl::StrCat(
      "data.class_names = [",
      absl::StrJoin(labels.first(std::min(labels.size(), kMostListed)), ", ", quoted),
      labels.size() > kMostListed ? ", …]" : "]");
}

}  // namespace

absl::StatusOr<Examples> Own(ExampleStore store, uint64_t row_elements, const std::string& path) {
  const auto owned = std::make_shared<const ExampleStore>(std::move(store));
  Examples examples;
  ExampleBlock& block = examples.block;
  block.count = owned->classes.size() + owned->targets.size();
  if (block.count == 0 || row_elements == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no examples"));
  }
  if (block.count > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds ", block.count, " examples; 4294967295 is the most"));
  }
  const bool tokens = !owned->tokens.empty(), bytes = !tokens && owned->floats.empty();
  block.type = tokens ? FeatureType::kI32 : bytes ? FeatureType::kU8 : FeatureType::kF32;
  block.features = tokens  ? reinterpret_cast<const std::byte*>(owned->tokens.data())
                   : bytes ? reinterpret_cast<const std::byte*>(owned->bytes.data())
                           : reinterpret_cast<const std::byte*>(owned->floats.data());
  if (!owned->lengths.empty()) block.lengths = owned->lengths.data();
  block.row_bytes = row_elements * SizeOf(block.type);
  if (!owned->classes.empty()) block.classes = owned->classes.data();
  if (!owned->targets.empty()) block.targets = owned->targets.data();
  if (bytes) examples.transform.scale = 1.0 / 255.0;
  examples.train = {0, block.count};
  examples.own_test = {block.count, block.count};
  examples.keep_alive = owned;
  return examples;
}

absl::StatusOr<ClassMap> MapClasses(std::span<const double> labels, int64_t limit,
                                    const std::string& path) {
  ClassMap result;
  std::vector<double> distinct(labels.begin(), labels.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (limit > 0 && distinct.size() > static_cast<uint64_t>(limit)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " holds ", distinct.size(), " different labels, but data.classes is ", limit));
  }
  if (limit > 0 && !distinct.empty()) {
    const bool classes = distinct.front() >= 0 && distinct.back() < static_cast<double>(limit);
    const bool sign =
        limit == 2 && std::ranges::all_of(distinct, [](double l) { return std::fabs(l) == 1; });
    // Also where all are here: a node that lacks one of them would number the others otherwise.
    if (!classes && !sign) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " holds ", distinct.size(), " different labels, ",
          static_cast<int64_t>(distinct.front()), " to ", static_cast<int64_t>(distinct.back()),
          ", and data.classes is ", limit, ", so that classes count from 0: ",
          distinct.size() < static_cast<uint64_t>(limit)
              ? "they do not say which classes are missing. List all labels on every node, as in "
              : "a node that lacks one of them would number the others otherwise. List them on "
                "every node: ",
          ListedAs(distinct), ". Or let labels count from 0"));
    }
    distinct.clear();
    if (classes) {
      for (int64_t label = 0; label < limit; ++label)
        distinct.push_back(static_cast<double>(label));
    } else {
      distinct = {-1, 1};
    }
  }
  for (const double label : distinct) result.map.push_back(static_cast<int64_t>(label));
  result.classes.reserve(labels.size());
  for (const double label : labels) {
    const auto place = std::lower_bound(distinct.begin(), distinct.end(), label);
    result.classes.push_back(static_cast<int32_t>(place - distinct.begin()));
  }
  return result;
}

std::vector<std::string> NamesOf(const ClassMap& map) {
  std::vector<std::string> names;
  bool numbered = true;
  for (size_t c = 0; c < map.map.size(); ++c) {
    numbered = numbered && map.map[c] == static_cast<int64_t>(c);
    names.push_back(absl::StrCat(map.map[c]));
  }
  return numbered ? std::vector<std::string>() : names;
}

absl::StatusOr<int64_t> CountClasses(std::span<const int32_t> labels, int64_t limit,
                                     const std::string& path) {
  if (limit < 0 || limit > kMostClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", limit, " classes; the number must be from 1 to ", kMostClasses));
  }
  if (labels.empty()) return limit;
  const auto [least, most] = std::minmax_element(labels.begin(), labels.end());
  const auto refuse = [&](std::span<const int32_t>::iterator at, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": label ", *at, " of row ", at - labels.begin(), " ", why));
  };
  if (*least < 0) return refuse(least, "is negative; classes count from 0");
  if (limit > 0) {
    if (*most >= limit) {
      return refuse(most, absl::StrCat("is out of range: data.classes is ", limit));
    }
    return limit;
  }
  const uint64_t classes = static_cast<uint64_t>(*most) + 1;
  if (classes > 2 * labels.size() + 1) {
    return refuse(most, absl::StrCat("is out of range for ", labels.size(),
                                     " examples; set data.classes if it is meant"));
  }
  std::vector<bool> seen(classes);
  for (const int32_t label : labels) seen[static_cast<size_t>(label)] = true;
  const auto distinct = static_cast<uint64_t>(std::count(seen.begin(), seen.end(), true));
  if (classes > 2 * distinct + 1) {
    return refuse(most, absl::StrCat("is out of range: only ", distinct, " of ", classes,
                                     " classes occur; set data.classes if it is meant"));
  }
  return static_cast<int64_t>(classes);
}

void NoteFirstClass(int64_t limit, Examples& examples) {
  const ExampleBlock& block = examples.block;
  if (limit > 0 || block.classes == nullptr || block.type == FeatureType::kI32) return;
  const std::span<const int32_t> labels(block.classes, block.count);
  const auto [least, most] = std::ranges::minmax_element(labels);
  if (labels.empty() || *least == 0) return;
  examples.notes.push_back(absl::StrCat("no row has class 0: labels are ", *least, " to ", *most,
                                        ", and classes count from 0; subtract ", *least,
                                        ", or say data.classes if it is meant"));
}

void NoteTargets(std::span<const double> labels, Examples& examples) {
  if (examples.block.targets == nullptr) return;
  std::string note = SpreadOf(labels).Note("label");
  if (!note.empty()) examples.notes.push_back(std::move(note));
}

}  // namespace macaw::data
