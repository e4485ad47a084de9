#include "training/api/score_cells.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace macaw::training {
namespace {

constexpr double kFine = 16;  // of a probability within 1.2e-7 of 0 or 1
constexpr int kOctaves = 16;  // of kBeyond and kNear on each side
constexpr size_t kMost = 4096;
constexpr size_t kMostOfGroup = size_t{1} << 18;  // of all histograms together

// A size from 1 to 2^kOctaves as one of `count` cells, and the middle of such a cell.
size_t CellOfSize(double size, size_t count) {
  const size_t each = count / kOctaves;  // of an octave
  int exponent = 0;
  const double mantissa = std::frexp(size, &exponent);  // from 1/2 to 1
  const auto part = static_cast<size_t>((2 * mantissa - 1) * static_cast<double>(each));
  return std::min(static_cast<size_t>(exponent - 1) * each + part, count - 1);
}

double MiddleOfCell(size_t cell, size_t count) {
  const double octaves = (static_cast<double>(cell) + 0.5) * kOctaves / static_cast<double>(count);
  return std::ldexp(1 + (octaves - std::floor(octaves)), static_cast<int>(octaves));
}

}  // namespace

ScoreCells::ScoreCells(size_t histograms, double centre)
    : size_(std::min(kMost, std::bit_floor(kMostOfGroup / histograms))), centre_(centre) {
  below_ = LinearAt(std::nextafter(centre - 1, -kFine));
  above_ = LinearAt(centre + 1);
}

size_t ScoreCells::LinearAt(double score) const {
  const double cell = (score / kFine + 1) * static_cast<double>(size_ / 2);
  return std::min(static_cast<size_t>(std::max(cell, 0.0)), size_ - 1);
}

ScoreCells::Cell ScoreCells::Of(double score) const {
  const size_t side = size_ / 2;
  const double distance = score - centre_;
  if (distance >= -1 && distance < 1) {
    // As the linear cells, these hold their lower end, which is the larger size below the centre.
    double size = std::ldexp(std::abs(distance), kOctaves);
    if (distance < 0) size = std::nextafter(size, 0);
    const size_t cell = CellOfSize(std::max(size, 1.0), side);
    return {Group::kNear, distance < 0 ? side - 1 - cell : side + cell};
  }
  if (score >= -kFine && score < kFine) return {Group::kLinear, LinearAt(score)};
  const double size = std::min(std::abs(score) / kFine, std::ldexp(1, kOctaves));
  const size_t cell = CellOfSize(size, side);
  return {Group::kBeyond, score < 0 ? side - 1 - cell : side + cell};
}

size_t ScoreCells::PlaceOf(Cell cell) const {
  const size_t side = size_ / 2;
  switch (cell.group) {
    case Group::kBeyond:
      return cell.number < side ? cell.number : 2 * size_ + cell.number;
    case Group::kNear:
      return side + below_ + 1 + cell.number;
    case Group::kLinear:
      break;
  }
  return side + cell.number + (cell.number > below_ ? size_ : 0);
}

size_t ScoreCells::LinearOf(Cell cell) const {
  const size_t side = size_ / 2;
  const bool above = cell.number >= side;
  switch (cell.group) {
    case Group::kBeyond:
      return above ? size_ - 1 : 0;
    case Group::kNear: {
      const double size = MiddleOfCell(above ? cell.number - side : side - 1 - cell.number, side);
      const double distance = std::ldexp(size, -kOctaves);
      return LinearAt(above ? centre_ + distance : centre_ - distance);
    }
    case Group::kLinear:
      break;
  }
  return cell.number;
}

}  // namespace macaw::training
