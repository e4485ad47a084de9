#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "core/settings/section.h"

namespace macaw {

// How groups of clients see the same examples in different ways (concept shift): classes renamed,
// or images turned.
enum class ConceptShift : uint8_t { kNone = 0, kLabelPermutation = 1, kRotation = 2 };

// What a cropped image shows where the stored one ends: zeros, the image mirrored at its outermost
// pixels (which are not repeated), or its outermost pixels. As modes "constant", "reflect" and
// "edge" of numpy.pad.
enum class PadMode : uint8_t { kZeros = 0, kReflect = 1, kEdge = 2 };

// How stored features become model inputs: x' = (x · scale − mean[c]) / std[c] per channel c, then
// the client's own noise, then augmentation (in training only). All of it happens while a batch is
// gathered.
struct TransformConfig {
  // Of a run's plan: not given means the data's own constants, until the plan is resolved. Anywhere
  // else: 1, 0 and 1.
  std::optional<double> scale;  // 1/255 for stored bytes
  std::vector<double> mean;     // per channel, or one value for all
  std::vector<double> std;      // the same
  int64_t pad_crop = 0;         // pad by this many pixels on each side, then crop at a random place
  PadMode pad_mode = PadMode::kZeros;
  bool flip = false;        // mirror left-right with probability 1/2
  double client_noise = 0;  // Gaussian noise, level · client rank / clients (NIID-bench)
  // A client's own labels and images (data/label_map.h), changed when its rows are loaded.
  double label_noise = 0;          // probability that a training row has a wrong label
  double label_noise_clients = 1;  // probability that a client has label noise at all
  ConceptShift concept_shift = ConceptShift::kNone;
  uint32_t concept_shift_groups = 4;

  // Whether scale, mean and std change a value.
  bool normalises() const;
  // Whether a client's rows differ from the stored ones before any of the above.
  bool changes_rows() const { return label_noise > 0 || concept_shift != ConceptShift::kNone; }
  friend bool operator==(const TransformConfig&, const TransformConfig&) = default;
};

// The groups of clients that see rows alike under concept shift. A client is in one of them, drawn
// from the run's seed; group 0 sees rows as they are stored. Without concept shift there is one
// group. A value.
class ConceptGroups {
 public:
  ConceptGroups() = default;
  ConceptGroups(const TransformConfig& transform, uint64_t seed)
      : count_(transform.concept_shift == ConceptShift::kNone ? 1 : transform.concept_shift_groups),
        seed_(seed) {}

  uint32_t count() const { return count_; }
  uint32_t Of(ClientId client) const;

 private:
  uint32_t count_ = 1;
  uint64_t seed_ = 0;
};

// The keys of [data] that all nodes agree on: client_noise, label_noise, concept_shift, normalise,
// augment.
settings::Section<TransformConfig> TransformSection();

}  // namespace macaw
