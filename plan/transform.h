#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/settings/section.h"

namespace macaw {

// How stored features become model inputs: x' = (x · scale − mean[c]) / std[c] per channel c, then
// the client's own noise, then augmentation (in training only). All of it happens while a batch is
// gathered.
struct TransformConfig {
  // Of a run's plan: not given means the data's own constants, until the plan is resolved. Anywhere
  // else: 1, 0 and 1.
  std::optional<double> scale;  // 1/255 for stored bytes
  std::vector<double> mean;     // per channel, or one value for all
  std::vector<double> std;      // the same
  int64_t pad_crop = 0;         // pad by this many zeros on each side, then crop at a random place
  bool flip = false;            // mirror left-right with probability 1/2
  double client_noise = 0;      // Gaussian noise, level · client rank / clients (NIID-bench)

  // Whether scale, mean and std change a value.
  bool normalises() const;
  friend bool operator==(const TransformConfig&, const TransformConfig&) = default;
};

// The keys of [data] that all nodes agree on: client_noise, normalise, augment.
settings::Section<TransformConfig> TransformSection();

}  // namespace macaw
