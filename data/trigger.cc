#include "data/trigger.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/random.h"
#include "core/status.h"

namespace macaw::data {
namespace {

constexpr Phase kTriggerDraw{5};  // among the draws of Purpose::kLabels (label_map.cc)

struct CopiedRows {
  std::vector<std::byte> features;
  std::vector<int32_t> classes;
  std::shared_ptr<const void> before;
};

template <typename T>
void StampImage(std::byte* image, const std::vector<int64_t>& shape, uint32_t side, T bright) {
  const int64_t height = shape[1], width = shape[2];
  for (int64_t c = 0; c < shape[0]; ++c) {
    for (int64_t y = height - int64_t{side}; y < height; ++y) {
      for (int64_t x = width - int64_t{side}; x < width; ++x) {
        std::memcpy(image + ((c * height + y) * width + x) * int64_t{sizeof(T)}, &bright,
                    sizeof(T));
      }
    }
  }
}

// Copies the rows for which takes(i) is true; has(i) says whether one gets trigger and class.
template <typename Takes, typename Has>
absl::StatusOr<Rows> CopyWithTrigger(Rows rows, const AttackConfig& attack,
                                     const std::vector<int64_t>& shape, Takes&& takes, Has&& has) {
  if (rows.empty()) return rows;
  ExampleBlock& block = rows.block;
  if (block.features == nullptr || block.classes == nullptr) {
    return absl::InvalidArgumentError(
        "attack.kind = \"backdoor\" stamps images and changes their classes, but these rows have "
        "none here");
  }
  uint64_t elements = 1;
  for (const int64_t axis : shape) elements *= static_cast<uint64_t>(axis);
  if (block.type == FeatureType::kI32 || elements * SizeOf(block.type) != block.row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attack.kind = \"backdoor\" stamps images of the run's [", absl::StrJoin(shape, ", "),
        "], but a row here has ", block.row_bytes / SizeOf(block.type), " values"));
  }
  const auto copy = std::make_shared<CopiedRows>();
  copy->features.reserve(rows.size() * block.row_bytes);
  for (uint64_t i = 0; i < rows.size(); ++i) {
    if (!takes(i)) continue;
    const std::byte* const from = block.features + rows.at(i) * block.row_bytes;
    copy->features.insert(copy->features.end(), from, from + block.row_bytes);
    copy->classes.push_back(block.classes[rows.at(i)]);
    if (!has(i)) continue;
    std::byte* const image = copy->features.data() + copy->features.size() - block.row_bytes;
    if (block.type == FeatureType::kU8) {
      StampImage<uint8_t>(image, shape, attack.trigger, 255);
    } else {
      StampImage<float>(image, shape, attack.trigger, 1);
    }
    copy->classes.back() = static_cast<int32_t>(attack.target);
  }
  block.features = copy->features.data();
  block.classes = copy->classes.data();
  block.lengths = nullptr;
  block.count = copy->classes.size();
  rows.index = {};
  copy->before = std::move(rows.keep_alive);
  rows.keep_alive = copy;
  return rows;
}

}  // namespace

absl::Status CheckTrigger(const AttackConfig& attack, TaskKind task, int64_t classes,
                          const std::vector<int64_t>& input_shape) {
  if (!attack.on() || !attack.backdoor()) return absl::OkStatus();
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("attack.kind = \"backdoor\" ", why...));
  };
  if (task != TaskKind::kClassification && task != TaskKind::kBinary)
    return refuse("changes classes, but run.task is \"", Name(task), "\"");
  if (int64_t{attack.target} >= classes) {
    return absl::InvalidArgumentError(absl::StrCat("attack.target = ", attack.target,
                                                   ", but the run has ", classes,
                                                   " classes, numbered from 0"));
  }
  if (input_shape.size() != 3) {
    return refuse("stamps images (channels x height x width), but an example is [",
                  absl::StrJoin(input_shape, ", "),
                  "]; data.input_shape can say that rows are images");
  }
  if (int64_t{attack.trigger} > std::min(input_shape[1], input_shape[2])) {
    return absl::InvalidArgumentError(absl::StrCat("attack.trigger = ", attack.trigger,
                                                   " pixels, but an image has ", input_shape[1],
                                                   " x ", input_shape[2]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Rows> Poisoned(Rows rows, const AttackConfig& attack,
                              const std::vector<int64_t>& input_shape) {
  const auto drawn = [&, owned = rows](uint64_t i) {
    const auto [key, row] = owned.Own(i);
    RandomStream stream({.seed = key.seed,
                         .purpose = Purpose::kLabels,
                         .phase = kTriggerDraw,
                         .client = key.client,
                         .extra = row});
    return stream.Uniform() < attack.poisoned;
  };
  return CopyWithTrigger(
      std::move(rows), attack, input_shape, [](uint64_t) { return true; }, drawn);
}

absl::StatusOr<Rows> Stamped(Rows rows, const AttackConfig& attack,
                             const std::vector<int64_t>& input_shape) {
  const auto other = [&, owned = rows](uint64_t i) {
    return owned.block.classes[owned.at(i)] != static_cast<int32_t>(attack.target);
  };
  return CopyWithTrigger(std::move(rows), attack, input_shape, other,
                         [](uint64_t) { return true; });
}

}  // namespace macaw::data
