#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The rows of SYNTHETIC(α, β). Private to synthetic.cc.
namespace macaw::data::synthetic {

inline constexpr size_t kFeatures = 60;
inline constexpr size_t kClasses = 10;
inline constexpr size_t kLanes = 16;  // the classes, padded to a vector
inline constexpr size_t kDraws = 64;  // normals per row: one group of RandomStream::FillNormal

struct ClientModel {
  std::array<float, kFeatures> center;
  std::array<float, kFeatures * kLanes> weights;
  std::array<float, kLanes> bias;
};

// Turns draws into rows [rows, kFeatures] and their classes [rows]. All instruction sets give the
// same bits.
void MakeRows(const ClientModel& model, const float* deviations, const float* draws, size_t rows,
              float* features, int32_t* classes);

}  // namespace macaw::data::synthetic
