#include "cli/results/model_distance.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/safetensors.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

bool IsFloat(const TensorRef& tensor) { return tensor.dtype == "F32" || tensor.dtype == "F64"; }

// A file's data need not be aligned.
template <typename T>
double NumberAt(const TensorRef& tensor, uint64_t i) {
  T number;
  std::memcpy(&number, tensor.bytes.data() + i * sizeof(T), sizeof(T));
  return static_cast<double>(number);
}

double NumberIn(const TensorRef& tensor, uint64_t i) {
  return tensor.dtype == "F64" ? NumberAt<double>(tensor, i) : NumberAt<float>(tensor, i);
}

}  // namespace

absl::StatusOr<double> DistanceOfModels(const std::string& a, const std::string& b) {
  MACAW_ASSIGN_OR_RETURN(const SafetensorsFile one, SafetensorsFile::Open(a));
  MACAW_ASSIGN_OR_RETURN(const SafetensorsFile other, SafetensorsFile::Open(b));
  double squares = 0;
  for (const auto& [name, tensor] : one.tensors()) {
    MACAW_ASSIGN_OR_RETURN(const TensorRef beside, other.Get(name, ""));
    if (!IsFloat(tensor) || !IsFloat(beside) || tensor.shape != beside.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", name, "' of ", a, " is not of the kind of that of ", b));
    }
    for (uint64_t i = 0; i < tensor.elements(); ++i) {
      const double difference = NumberIn(tensor, i) - NumberIn(beside, i);
      squares += difference * difference;
    }
  }
  if (one.tensors().size() == other.tensors().size()) return std::sqrt(squares);
  return absl::InvalidArgumentError(absl::StrCat(b, " has tensors that ", a, " lacks"));
}

}  // namespace macaw::cli
