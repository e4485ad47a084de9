#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/results/statistics.h"

namespace macaw::cli {

// Lines of cells as columns that are aligned on the screen, two spaces apart. All lines have as
// many cells as the first.
std::string AlignedText(const std::vector<std::vector<std::string>>& lines);

// "0.9402", "1.23e-05"
std::string MetricText(double value);
// Every digit, for programs: "0.94020000000000004"
std::string ExactText(double value);
// "0.9402 ± 0.0021"; of one value "0.9402"
std::string NumberText(const Estimate& estimate);
// "0.91 to 0.95"; "-" where there is none
std::string IntervalText(const std::optional<Interval>& interval);
std::string ProbabilityText(const std::optional<double>& p);  // "0.0123", "< 0.0001", "-"

// "1 to 3", "1 to 3, 7", "5": of a sorted list.
std::string SeedsText(const std::vector<uint64_t>& seeds);

// Which way a metric by which runs can be compared is better.
bool HigherMetricIsBetter(const std::string& metric);

// A line of CSV (RFC 4180, but with \n): a cell with a comma, a quote or a line break is quoted.
std::string CsvLine(const std::vector<std::string>& cells);

}  // namespace macaw::cli
