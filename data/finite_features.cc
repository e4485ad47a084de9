#include "data/finite_features.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "data/text.h"

namespace macaw::data {
namespace {

float FloatAt(const std::byte* bytes) {
  float value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Whether each of these floats, which need not be aligned, is finite. No branch for each, so that
// compilers make vectors of it.
bool AreFinite(const std::byte* bytes, uint64_t count) {
  constexpr uint32_t kExponent = 0x7f800000;  // all ones: infinite, or no number
  constexpr uint64_t kAtOnce = 4096;
  for (uint64_t begin = 0; begin < count; begin += kAtOnce) {
    const uint64_t end = std::min(count, begin + kAtOnce);
    uint32_t wrong = 0;
    for (uint64_t i = begin; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, bytes + i * sizeof(bits), sizeof(bits));
      wrong |= (bits & kExponent) == kExponent ? 1 : 0;
    }
    if (wrong != 0) return false;
  }
  return true;
}

absl::Status RefuseRow(const std::string& path, const ExampleBlock& block, uint64_t row) {
  const std::byte* features = block.features + row * block.row_bytes;
  uint64_t element = 0;
  while (std::isfinite(FloatAt(features + element * sizeof(float)))) ++element;
  return Refuse(path, ": tensor \"features\" has ", FloatAt(features + element * sizeof(float)),
                " in row ", row, " (element ", element,
                "), which is not finite: fill the gap or leave the row out, and write the file "
                "again");
}

bool NeedsNoCheck(const std::string& path, const ExampleBlock& block) {
  return path.empty() || block.type != FeatureType::kF32;
}

}  // namespace

absl::Status CheckFeatures(const std::string& path, const ExampleBlock& block, RowRange rows) {
  if (NeedsNoCheck(path, block) || rows.size() == 0) return absl::OkStatus();
  const uint64_t width = block.row_bytes / sizeof(float);
  const auto at = [&](uint64_t row) { return block.features + row * block.row_bytes; };
  if (AreFinite(at(rows.begin), rows.size() * width)) return absl::OkStatus();
  uint64_t row = rows.begin;
  while (AreFinite(at(row), width)) ++row;
  return RefuseRow(path, block, row);
}

absl::Status CheckFeatures(const std::string& path, const ExampleBlock& block,
                           std::span<const uint32_t> rows) {
  if (NeedsNoCheck(path, block)) return absl::OkStatus();
  const uint64_t width = block.row_bytes / sizeof(float);
  for (const uint32_t row : rows) {
    if (!AreFinite(block.features + uint64_t{row} * block.row_bytes, width))
      return RefuseRow(path, block, row);
  }
  return absl::OkStatus();
}

absl::Status CheckAtOpening(const std::string& path, bool all, Examples& examples) {
  const ExampleBlock& block = examples.block;
  if (all) return CheckFeatures(path, block, RowRange{0, block.count});
  examples.unchecked = path;
  MACAW_RETURN_IF_ERROR(CheckFeatures(path, block, examples.own_test));
  return CheckFeatures(path, block, examples.own_val);
}

absl::Status LoadEachClient(const Dataset& dataset) {
  for (ClientId client; client.value < dataset.info().clients; ++client.value) {
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
      if (dataset.Examples(client, split) == 0) continue;
      MACAW_RETURN_IF_ERROR(dataset.Client(client, split).status());
    }
  }
  return absl::OkStatus();
}

}  // namespace macaw::data
