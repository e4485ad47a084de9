#include "training/api/calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace macaw::training {
namespace {

constexpr double kUnits = 1 << 24;  // of a confidence of 1
// Places within a bin's counts, the digits from the largest one on.
enum : size_t { kRows = 0, kRight = 1, kDigits = 2, kCountsOfABin = 5 };

// The confidences' sum, in units of 2⁻²⁴.
double SumOfConfidences(std::span<const double> bin) {
  return (bin[kDigits] * 256 + bin[kDigits + 1]) * 256 + bin[kDigits + 2];
}

std::span<const double> BinOf(std::span<const double> counts, size_t bin) {
  return counts.subspan(bin * kCountsOfABin, kCountsOfABin);
}

}  // namespace

void AddConfidence(double confidence, bool correct, std::span<double> counts) {
  const auto units = static_cast<uint32_t>(std::lround(std::clamp(confidence, 0.0, 1.0) * kUnits));
  const double place = std::ceil(units / kUnits * kCalibrationBins);
  const auto bin = static_cast<size_t>(std::max(place, 1.0)) - 1;
  const std::span<double> of = counts.subspan(bin * kCountsOfABin, kCountsOfABin);
  of[kRows] += 1;
  of[kRight] += correct ? 1 : 0;
  of[kDigits] += units >> 16;  // up to 256
  of[kDigits + 1] += (units >> 8) & 255;
  of[kDigits + 2] += units & 255;
}

double CalibratedRows(std::span<const double> counts) {
  double rows = 0;
  for (size_t bin = 0; bin < kCalibrationBins; ++bin) rows += BinOf(counts, bin)[kRows];
  return rows;
}

bool CalibrationFits(std::span<const double> counts) {
  for (size_t bin = 0; bin < kCalibrationBins; ++bin) {
    const std::span<const double> of = BinOf(counts, bin);
    const double most = of[kRows] * kUnits;
    const bool digits = std::max(of[kDigits + 1], of[kDigits + 2]) <= 255 * of[kRows];
    // Each confidence lies within the bin, up to a unit for its rounding.
    const double sum = SumOfConfidences(of);
    const double low = most * static_cast<double>(bin) / kCalibrationBins - of[kRows];
    const double high = most * static_cast<double>(bin + 1) / kCalibrationBins + of[kRows];
    if (of[kRight] > of[kRows] || !digits || sum > most || sum < low || sum > high) return false;
  }
  return true;
}

double CalibrationError(std::span<const double> counts) {
  const double rows = CalibratedRows(counts);
  if (rows == 0) return std::numeric_limits<double>::quiet_NaN();
  double error = 0;
  for (size_t bin = 0; bin < kCalibrationBins; ++bin) {
    const std::span<const double> of = BinOf(counts, bin);
    error += std::abs(of[kRight] - SumOfConfidences(of) / kUnits);
  }
  return error / rows;
}

}  // namespace macaw::training
