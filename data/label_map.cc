#include "data/label_map.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/random.h"
#include "core/status.h"

namespace macaw::data {
namespace {

// 3 is the draw of a client's group (ConceptGroups).
enum LabelDraw : uint32_t { kIsNoisyDraw = 1, kNoiseDraw = 2, kNamesDraw = 4 };

RandomStream LabelStream(uint64_t seed, LabelDraw what, ClientId client = {}, uint64_t extra = 0) {
  return RandomStream({.seed = seed,
                       .purpose = Purpose::kLabels,
                       .phase = Phase(what),
                       .client = client,
                       .extra = extra});
}

std::vector<int32_t> NamesOfGroup(uint64_t seed, uint32_t group, int64_t classes) {
  const auto count = static_cast<size_t>(classes);
  std::vector<int32_t> order(count), renamed(count);
  std::iota(order.begin(), order.end(), 0);
  LabelStream(seed, kNamesDraw).Shuffle(std::span(order));
  for (size_t i = 0; i < count; ++i)
    renamed[static_cast<size_t>(order[i])] = order[(i + group) % count];
  return renamed;
}

// Turns an image, channels x height x width, counter-clockwise. Requires height = width for one or
// three quarters.
template <typename T>
void TurnImage(const std::byte* image, const std::vector<int64_t>& shape, uint32_t quarters,
               std::byte* to) {
  const int64_t height = shape[1], width = shape[2];
  for (int64_t c = 0; c < shape[0]; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x, to += sizeof(T)) {
        const int64_t from_y = quarters == 1 ? x : quarters == 2 ? height - 1 - y : height - 1 - x;
        const int64_t from_x = quarters == 1 ? width - 1 - y : quarters == 2 ? width - 1 - x : y;
        std::memcpy(to, image + ((c * height + from_y) * width + from_x) * int64_t{sizeof(T)},
                    sizeof(T));
      }
    }
  }
}

// What a changed copy of rows owns. `before` keeps alive what is not copied.
struct ChangedRows {
  std::vector<std::byte> features;
  std::vector<int32_t> classes, lengths;
  std::vector<float> targets;
  std::shared_ptr<const void> before;
};

// Calls f(i, changes, key, row) for each row i, which is the row-th of the client of the key.
template <typename F>
void ForEachRow(const Rows& rows, std::span<const RowChanges> changes, F&& f) {
  NoiseKey key = rows.noise;
  const std::span<const RowOwner> owners = rows.owners;
  for (size_t owner = 0; owner < changes.size(); ++owner) {
    const uint64_t first = owners.empty() ? 0 : owners[owner].first;
    const uint64_t next = owner + 1 < owners.size() ? owners[owner + 1].first : rows.size();
    const uint64_t end = std::min(next, rows.size());
    if (!owners.empty()) key.client = owners[owner].client;
    for (uint64_t i = first; i < end; ++i) f(i, changes[owner], key, i - first);
  }
}

void CopyFeatures(const Rows& rows, std::span<const RowChanges> changes,
                  const std::vector<int64_t>& shape, ChangedRows& copy) {
  const ExampleBlock& block = rows.block;
  copy.features.resize(rows.size() * block.row_bytes);
  ForEachRow(rows, changes, [&](uint64_t i, const RowChanges& own, const NoiseKey&, uint64_t) {
    const std::byte* const from = block.features + rows.at(i) * block.row_bytes;
    std::byte* const to = copy.features.data() + i * block.row_bytes;
    if (own.quarter_turns == 0) {
      std::memcpy(to, from, block.row_bytes);
    } else if (block.type == FeatureType::kU8) {
      TurnImage<uint8_t>(from, shape, own.quarter_turns, to);
    } else {
      TurnImage<float>(from, shape, own.quarter_turns, to);
    }
  });
}

// Errors: a class that is not below the number of classes.
absl::Status ChangeLabels(const Rows& rows, std::span<const RowChanges> changes,
                          std::vector<int32_t>& labels) {
  absl::Status status;
  ForEachRow(rows, changes,
             [&](uint64_t i, const RowChanges& own, const NoiseKey& key, uint64_t row) {
               int32_t& label = labels[i];
               if (label < 0 || label >= own.classes) {
                 status.Update(absl::InvalidArgumentError(absl::StrCat(
                     "a row has class ", label, ", but the run has ", own.classes,
                     " classes, among which data.label_noise, data.concept_shift and attack.kind = "
                     "\"label-flip\" change them")));
                 return;
               }
               label = LabelOf(own, key, row, label);
             });
  return status;
}

template <typename T>
std::vector<T> Picked(const T* values, const Rows& rows) {
  std::vector<T> picked;
  if (values == nullptr) return picked;
  picked.reserve(rows.size());
  for (uint64_t i = 0; i < rows.size(); ++i) picked.push_back(values[rows.at(i)]);
  return picked;
}

absl::Status CheckCanTurn(const std::vector<int64_t>& shape, uint32_t groups) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.concept_shift = \"rotation\" ", why, ", but an example is [",
        absl::StrJoin(shape, ", "), "]; data.input_shape can say that rows are images"));
  };
  if (shape.size() != 3) return refuse("needs images (channels x height x width)");
  if (groups == 4 && shape[1] != shape[2]) return refuse("by quarters needs square images");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckChanges(const TransformConfig& transform, TaskKind task, int64_t classes,
                          const std::vector<int64_t>& input_shape) {
  const uint32_t groups = transform.concept_shift_groups;
  const bool permutes = transform.concept_shift == ConceptShift::kLabelPermutation;
  if (transform.label_noise > 0 || permutes) {
    const char* const key =
        permutes ? "data.concept_shift = \"label-permutation\"" : "data.label_noise";
    if (task != TaskKind::kClassification && task != TaskKind::kBinary) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, " changes classes, but run.task is \"", Name(task),
                       "\": it needs \"classification\" or \"binary\""));
    }
    if (classes < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, " needs two classes, but the run has ", classes));
    }
    if (permutes && int64_t{groups} > classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.concept_shift_groups = ", groups, ", but ", classes,
                       " classes can be renamed in ", classes, " ways that differ everywhere"));
    }
  }
  if (transform.concept_shift != ConceptShift::kRotation) return absl::OkStatus();
  if (groups != 2 && groups != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.concept_shift_groups = ", groups,
                     ": with concept_shift = \"rotation\" it must be 2 or 4, so that images turn "
                     "by multiples of 90 degrees"));
  }
  return CheckCanTurn(input_shape, groups);
}

RowChanges ShiftOf(const TransformConfig& transform, uint64_t seed, uint32_t group,
                   int64_t classes) {
  RowChanges changes{.classes = classes};
  if (group == 0) return changes;
  if (transform.concept_shift == ConceptShift::kRotation) {
    changes.quarter_turns = group * 4 / transform.concept_shift_groups;
  } else {
    changes.renamed = NamesOfGroup(seed, group, classes);
  }
  return changes;
}

RowChanges ChangesOf(const TransformConfig& transform, const NoiseKey& key, int64_t classes) {
  const ConceptGroups groups(transform, key.seed);
  RowChanges changes = ShiftOf(transform, key.seed, groups.Of(key.client), classes);
  if (key.split != Split::kTrain || transform.label_noise == 0) return changes;
  const bool noisy =
      transform.label_noise_clients >= 1 ||
      LabelStream(key.seed, kIsNoisyDraw, key.client).Uniform() < transform.label_noise_clients;
  if (noisy) changes.label_noise = transform.label_noise;
  return changes;
}

int32_t LabelOf(const RowChanges& changes, const NoiseKey& key, uint64_t row, int32_t label) {
  if (!changes.renamed.empty()) label = changes.renamed[static_cast<size_t>(label)];
  if (changes.label_noise > 0) {
    RandomStream stream = LabelStream(key.seed, kNoiseDraw, key.client, row);
    if (stream.Uniform() < changes.label_noise) {
      const auto other =
          static_cast<int32_t>(stream.Below(static_cast<uint64_t>(changes.classes - 1)));
      label = other < label ? other : other + 1;
    }
  }
  return changes.flipped ? static_cast<int32_t>(changes.classes - 1) - label : label;
}

absl::StatusOr<Rows> ApplyChanges(Rows rows, std::span<const RowChanges> changes,
                                  const std::vector<int64_t>& input_shape) {
  const auto any = [&](auto&& has) { return std::any_of(changes.begin(), changes.end(), has); };
  const bool labels = any([](const RowChanges& own) { return own.labels(); });
  const bool turns = any([](const RowChanges& own) { return own.quarter_turns > 0; });
  if ((!labels && !turns) || rows.empty()) return rows;
  ExampleBlock& block = rows.block;
  if (block.features == nullptr || (labels && block.classes == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.label_noise, data.concept_shift and attack.kind = \"label-flip\" change rows and "
        "their classes, but these rows ",
        block.features == nullptr ? "lie elsewhere (data.source = \"declared\")"
                                  : "have regression targets"));
  }
  if (turns) {
    uint64_t elements = 1;
    for (const int64_t axis : input_shape) elements *= static_cast<uint64_t>(axis);
    if (block.type == FeatureType::kI32 || elements * SizeOf(block.type) != block.row_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.concept_shift = \"rotation\" turns images of the run's [",
                       absl::StrJoin(input_shape, ", "), "], but a row here has ",
                       block.row_bytes / SizeOf(block.type), " values"));
    }
    const bool quarters = any([](const RowChanges& own) { return own.quarter_turns % 2 == 1; });
    MACAW_RETURN_IF_ERROR(CheckCanTurn(input_shape, quarters ? 4 : 2));
  }
  const auto copy = std::make_shared<ChangedRows>();
  if (block.classes != nullptr) copy->classes = Picked(block.classes, rows);
  if (labels) MACAW_RETURN_IF_ERROR(ChangeLabels(rows, changes, copy->classes));
  if (turns || !rows.index.empty()) {
    CopyFeatures(rows, changes, input_shape, *copy);
    copy->targets = Picked(block.targets, rows);
    copy->lengths = Picked(block.lengths, rows);
    block.count = rows.size();
    block.features = copy->features.data();
    if (block.targets != nullptr) block.targets = copy->targets.data();
    if (block.lengths != nullptr) block.lengths = copy->lengths.data();
    rows.index = {};
  }
  if (block.classes != nullptr) block.classes = copy->classes.data();
  copy->before = std::move(rows.keep_alive);
  rows.keep_alive = copy;
  return rows;
}

}  // namespace macaw::data
