#include "cli/results/text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/csv_cell.h"
#include "server/early_stopping.h"

namespace macaw::cli {
namespace {

constexpr double kLargestWhole = 1e15;  // that is written digit by digit

// The width on screen: a "±" is two bytes but one column.
size_t WidthOf(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string ExactText(double value) { return absl::StrFormat("%.17g", value); }

std::string AlignedText(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], WidthOf(line[i]));
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      absl::StrAppend(&text, line[i]);
      if (i + 1 < line.size()) text.append(widths[i] - WidthOf(line[i]) + 2, ' ');
    }
    text.push_back('\n');
  }
  return text;
}

std::string MetricText(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e9) return absl::StrFormat("%.0f", value);
  const double size = std::fabs(value);
  return absl::StrFormat(size >= 0.001 && size < 1000 ? "%.4f" : "%.4g", value);
}

std::string NumberText(const Estimate& estimate) {
  const double mean = estimate.mean;
  // Of a mean of 0, the deviation is the size.
  const double size = std::max(std::fabs(mean), estimate.std.value_or(0));
  const bool has_four_places = size >= 0.001 && std::fabs(mean) < 1000;
  if (!estimate.std.has_value()) {
    if (mean == std::floor(mean) && std::fabs(mean) < 1e9) return absl::StrFormat("%.0f", mean);
    return absl::StrFormat(has_four_places ? "%.4f" : "%.6g", mean);
  }
  if (*estimate.std == 0 && mean == std::floor(mean))
    return absl::StrFormat(std::fabs(mean) < kLargestWhole ? "%.0f ± 0" : "%.6g ± 0", mean);
  if (has_four_places) return absl::StrFormat("%.4f ± %.4f", mean, *estimate.std);
  return absl::StrFormat("%.6g ± %.3g", mean, *estimate.std);
}

std::string IntervalText(const std::optional<Interval>& interval) {
  return interval.has_value()
             ? absl::StrCat(MetricText(interval->low), " to ", MetricText(interval->high))
             : "-";
}

std::string ProbabilityText(const std::optional<double>& p) {
  if (!p.has_value()) return "-";
  return *p < 0.0001 ? "< 0.0001" : absl::StrFormat("%.4f", *p);
}

std::string SeedsText(const std::vector<uint64_t>& seeds) {
  std::vector<std::string> parts;
  for (size_t first = 0, next = 0; first < seeds.size(); first = next) {
    for (next = first + 1; next < seeds.size() && seeds[next] == seeds[next - 1] + 1;) ++next;
    if (next - first > 2) {
      parts.push_back(absl::StrCat(seeds[first], " to ", seeds[next - 1]));
    } else {
      for (size_t i = first; i < next; ++i) parts.push_back(absl::StrCat(seeds[i]));
    }
  }
  return absl::StrJoin(parts, ", ");
}

bool HigherMetricIsBetter(const std::string& metric) {
  const bool fewer = metric == "seconds" || absl::StartsWith(metric, "rounds_to_") ||
                     absl::StrContains(metric, "bytes_");
  // A value is as good as its own name says, whatever has chosen its round.
  const std::string own = metric.substr(0, metric.find("_at_best_"));
  // run.stop waits for it to grow, but a run with less of it is more private.
  if (own == "rule_epsilon" || own == "best_rule_epsilon") return false;
  return !fewer && server::HigherIsBetter(own);
}

std::string CsvLine(const std::vector<std::string>& cells) {
  return absl::StrCat(
      absl::StrJoin(cells, ",",
                    [](std::string* out, const std::string& cell) { out->append(CsvCell(cell)); }),
      "\n");
}

}  // namespace macaw::cli
