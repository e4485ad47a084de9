#include "data/number_labels.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "data/examples.h"
#include "data/text.h"

namespace macaw::data {
namespace {

constexpr double kFirstLarge = 0x1.0p31;    // no smaller number is refused for its size
constexpr double kLargestExact = 0x1.0p53;  // of the whole numbers of float64

std::string NumberText(double number) { return absl::StrFormat("%.17g", number); }

constexpr char kWays[] =
    "list all labels in data.class_names, in the order that every node uses, or other names for "
    "all of them";

// data.class_names as labels.
struct ListedLabels {
  explicit ListedLabels(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const std::optional<double> number = ParseNumber(name);
      if (!number || !std::isfinite(*number) || *number != std::floor(*number)) {
        if (word.empty()) word = Quoted(name);
        continue;
      }
      counts_from_0 = counts_from_0 && *number == static_cast<double>(class_of.size());
      const auto next = static_cast<int32_t>(class_of.size());
      if (!class_of.emplace(*number, next).second && twice.empty()) twice = Quoted(name);
    }
  }
  bool Has(double label) const { return class_of.contains(label); }

  std::unordered_map<double, int32_t> class_of;
  std::string word;   // the first name that is no whole number
  std::string twice;  // the first one that repeats an earlier one
  bool counts_from_0 = true;
};

// Whether data.class_names are labels of the file, and not other names for them.
absl::StatusOr<bool> ListsLabels(std::span<const double> distinct, const ListedLabels& listed,
                                 const DataOptions& options) {
  const auto has = [&](double label) { return listed.Has(label); };
  if (std::ranges::none_of(distinct, has)) return false;
  const auto missing = std::ranges::find_if_not(distinct, has);
  if (missing != distinct.end()) {
    return Refuse(options.path, " holds the label ", NumberText(*missing),
                  ", which is none of data.class_names (", absl::StrJoin(options.class_names, ", "),
                  "), and others that are: ", kWays);
  }
  if (!listed.word.empty())
    return Refuse("data.class_names has ", listed.word, " among numbers that are labels of ",
                  options.path, ": ", kWays);
  return true;
}

absl::StatusOr<NumberClasses> InListedOrder(std::span<const double> labels,
                                            const ListedLabels& listed,
                                            const DataOptions& options) {
  if (!listed.twice.empty())
    return Refuse("data.class_names lists ", listed.twice, " twice: a class has one place");
  const auto count = static_cast<int64_t>(listed.class_of.size());
  if (options.classes > 0 && count > options.classes) {
    return Refuse("data.class_names lists ", count, " labels, but data.classes is ",
                  options.classes);
  }
  NumberClasses classes;
  classes.of_row.reserve(labels.size());
  for (const double label : labels) classes.of_row.push_back(listed.class_of.at(label));
  classes.count = std::max(count, options.classes);
  if (!listed.counts_from_0) classes.names = options.class_names;
  return classes;
}

absl::StatusOr<NumberClasses> InSortedOrder(std::span<const double> labels,
                                            const DataOptions& options) {
  MACAW_ASSIGN_OR_RETURN(ClassMap map, MapClasses(labels, options.classes, options.path));
  NumberClasses classes;
  classes.count = std::max<int64_t>(static_cast<int64_t>(map.map.size()), options.classes);
  classes.names = NamesOf(map);
  classes.of_row = std::move(map.classes);
  if (options.classes > 1 && !labels.empty() && std::ranges::min(labels) == 1) {
    classes.note =
        absl::StrCat("no row has the label 0, and data.classes = ", options.classes,
                     " says that labels count from 0: where they count from 1, list all of them in "
                     "data.class_names, alike on every node");
  }
  return classes;
}

// Whole numbers that large are measurements as likely as classes, which nothing but their owner
// knows.
absl::Status CheckSize(std::span<const double> distinct, bool listed, const std::string& path) {
  if (distinct.empty()) return absl::OkStatus();
  const double largest =
      std::fabs(distinct.front()) > std::fabs(distinct.back()) ? distinct.front() : distinct.back();
  if (std::fabs(largest) < (listed ? kLargestExact : kFirstLarge)) return absl::OkStatus();
  const bool exact = std::fabs(largest) < kLargestExact;
  return Refuse(path, " has whole numbers for labels, as large as ", NumberText(largest),
                ", which may be classes or numbers to predict: set data.labels = \"numbers\" to "
                "predict them; if they are classes, ",
                exact ? "list all of them in data.class_names, or " : "", "make words of them");
}

std::vector<double> Distinct(std::span<const double> labels) {
  std::vector<double> distinct(labels.begin(), labels.end());
  std::ranges::sort(distinct);
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return distinct;
}

}  // namespace

absl::Status CheckNoneTwice(const std::vector<std::string>& class_names) {
  std::unordered_set<std::string> seen;
  for (const std::string& name : class_names) {
    if (!seen.insert(name).second)
      return Refuse("data.class_names lists ", Quoted(name), " twice: a class has one place");
  }
  return absl::OkStatus();
}

absl::StatusOr<NumberClasses> ClassesOfNumbers(std::span<const double> labels,
                                               const DataOptions& options) {
  const std::vector<double> distinct = Distinct(labels);
  const ListedLabels names(options.class_names);
  MACAW_ASSIGN_OR_RETURN(const bool listed, ListsLabels(distinct, names, options));
  MACAW_RETURN_IF_ERROR(CheckSize(distinct, listed, options.path));
  if (!listed) return InSortedOrder(labels, options);
  MACAW_ASSIGN_OR_RETURN(NumberClasses classes, InListedOrder(labels, names, options));
  // Where none is missing, sorted order is that of the labels.
  const bool all = distinct.size() == static_cast<uint64_t>(options.classes);
  DataOptions unlimited = options;
  if (all) unlimited.classes = 0;
  const absl::StatusOr<NumberClasses> sorted = InSortedOrder(labels, unlimited);
  classes.ordered_by_names =
      !sorted.ok() || sorted->of_row != classes.of_row || sorted->count != classes.count;
  return classes;
}

}  // namespace macaw::data
