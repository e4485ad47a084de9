#include "codecs/majority.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "codecs/line.h"
#include "codecs/tensors.h"
#include "core/status.h"

namespace macaw::codecs {
namespace {

constexpr char kMajority[] = "majority";
constexpr double kMostStep = 1000;

template <typename T>
T SignOf(T value) {
  return static_cast<T>(value > 0 ? 1 : value < 0 ? -1 : 0);
}

}  // namespace

void ToVotes(VectorView v) {
  ForEachTensor(v, []<typename T>(std::span<T> values) {
    for (T& value : values) value = std::isfinite(value) ? SignOf(value) : value;
  });
}

void Decide(double step, VectorView m) {
  ForEachTensor(m, [step]<typename T>(std::span<T> values) {
    for (T& value : values) value = static_cast<T>(step) * SignOf(value);
  });
}

bool HasMajority(const std::vector<std::string>& lines) {
  return std::ranges::any_of(
      lines, [](const std::string& text) { return Line(text).name() == kMajority; });
}

absl::StatusOr<double> StepOfMajority(const std::vector<std::string>& lines) {
  const auto text = std::ranges::find_if(
      lines, [](const std::string& one) { return Line(one).name() == kMajority; });
  Line line(*text);
  MACAW_ASSIGN_OR_RETURN(const double step, line.Number("the step of a weight", kMostStep));
  MACAW_RETURN_IF_ERROR(line.End("\"majority STEP\""));
  if (step < std::numeric_limits<float>::min())
    return line.Refuse("such a step is zero in floats and would move no weight");
  if (lines.size() == 1) return step;
  if (Line(lines.front()).name() == "rotate")
    return line.Refuse(
        "a vote is on the sign of each weight, and rotated numbers are mixtures of thousands of "
        "weights: take \"rotate\" out");
  return line.Refuse(
      "a vote is one bit a weight already and stands alone: take the other lines out");
}

}  // namespace macaw::codecs
