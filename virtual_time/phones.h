#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"
#include "virtual_time/devices.h"

namespace macaw::virtual_time {

// Phones and networks as published with FLASH (Yang et al., "Characterizing impacts of
// heterogeneity in federated learning upon large-scale smartphone data", WWW 2021): 307 models of
// phones with their scores in a benchmark of neural networks, and 19 networks whose rates were
// measured. Speeds are taken to be proportional to scores.
struct Phone {
  absl::string_view name;
  uint32_t score = 0;
};
std::span<const Phone> Phones();                // by score, ascending
inline constexpr uint32_t kMedianScore = 4638;  // of a phone of this list

struct Network {
  Rate down, up;  // bytes a second; mean and deviation of a network's measurements
};
inline constexpr size_t kNetworkCount = 19;
Network NetworkOf(size_t index);  // index < kNetworkCount

}  // namespace macaw::virtual_time
