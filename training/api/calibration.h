#pragma once

#include <cstddef>
#include <span>

namespace macaw::training {

// The expected calibration error of Guo et al. 2017 ("On Calibration of Modern Neural Networks",
// eq. 3): rows are sorted into M = 15 bins by their confidence, the largest of the predicted
// probabilities, where bin m is (m/M, (m + 1)/M], and
//   ECE = Σ_m |B_m|/n · |acc(B_m) − conf(B_m)|,
// acc the share of rows that are right, conf the mean confidence. A bin has five counts: its rows,
// those that are right, and the sum of its confidences. A confidence is rounded to 2⁻²⁴ (it is then
// within 2⁻²⁵ of what it was, and so is the error) and split into three digits of 8 bits, each of
// which has a sum of its own. So all sums are whole numbers: exact in any order of additions, and
// small enough for the wire up to 16 million rows.
inline constexpr size_t kCalibrationBins = 15;
inline constexpr size_t kCalibrationCounts = 5 * kCalibrationBins;

// Adds a row to `counts`, kCalibrationCounts numbers. `confidence` is in [0, 1].
void AddConfidence(double confidence, bool correct, std::span<double> counts);

// How many rows were added.
double CalibratedRows(std::span<const double> counts);

// Whether rows can give these counts.
bool CalibrationFits(std::span<const double> counts);

// NaN without rows.
double CalibrationError(std::span<const double> counts);

}  // namespace macaw::training
