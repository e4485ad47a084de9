#include "proto/fleet/compact_vector.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "proto/fleet/vector_codec.h"

namespace macaw::fleet {
namespace {

struct CompactHeader {
  uint64_t magic = 0x4143'5657'4143'414d;  // "MACAWVCA" in memory
  uint32_t version = 1;
  uint32_t is_change = 0;
  decltype(Digest::bytes) layout = {};
};
static_assert(sizeof(CompactHeader) == 48);

absl::Status RefusedForm(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("compact vector: ", why));
}

// The vector of the blocks that follow the header.
absl::StatusOr<FlatVector> ReadBlocks(std::span<const std::byte> bytes, const LayoutPtr& layout) {
  BlockReader reader(bytes.subspan(sizeof(CompactHeader)));
  FlatVector vector(layout);
  absl::Status status;
  ForEachBlock(*layout, [&](uint64_t offset, size_t count) {
    if (status.ok()) status = reader.Values(vector.As<float>().subspan(offset, count));
  });
  MACAW_RETURN_IF_ERROR(status);
  MACAW_RETURN_IF_ERROR(reader.End());
  if (reader.left() > 0) return RefusedForm(absl::StrCat(reader.left(), " bytes too many"));
  return vector;
}

// Blocks of `values`, if a receiver can make `vector` of them.
std::optional<AlignedBuffer> Encoded(ConstVectorView before, ConstVectorView values,
                                     ConstVectorView vector, ValueForms forms) {
  if (values.dtype() != DType::kF32) return std::nullopt;
  CompactHeader header{.is_change = before.empty() ? 0u : 1u,
                       .layout = values.layout->digest().bytes};
  std::vector<std::byte> out(sizeof(header));
  std::memcpy(out.data(), &header, sizeof(header));
  BlockWriter writer(&out);
  ForEachBlock(*values.layout, [&](uint64_t offset, size_t count) {
    writer.Values(values.As<float>().subspan(offset, count), forms);
  });
  writer.End();
  if (out.size() >= vector.bytes.size()) return std::nullopt;
  // The caller's layout outlives this.
  const LayoutPtr layout(std::shared_ptr<void>(), values.layout);
  absl::StatusOr<FlatVector> read = ReadBlocks(out, layout);
  if (!read.ok()) return std::nullopt;
  if (!before.empty()) {
    FlatVector changed = FlatVector::CopyOf(before, layout);
    AddChange(std::as_const(*read).view(), changed.view());
    *read = std::move(changed);
  }
  if (!std::ranges::equal(std::as_const(*read).view().bytes, vector.bytes)) return std::nullopt;
  AlignedBuffer buffer = AlignedBuffer::Unset(out.size());
  std::memcpy(buffer.bytes().data(), out.data(), out.size());
  return buffer;
}

}  // namespace

std::optional<AlignedBuffer> EncodeCompact(ConstVectorView vector, ValueForms forms) {
  return Encoded({}, vector, vector, forms);
}

std::optional<AlignedBuffer> EncodeCompactChange(ConstVectorView before, ConstVectorView change,
                                                 ConstVectorView vector, ValueForms forms) {
  return Encoded(before, change, vector, forms);
}

absl::StatusOr<AlignedBuffer> ExpandCompact(std::span<const std::byte> bytes,
                                            const LayoutPtr& layout,
                                            std::span<const std::byte> before) {
  CompactHeader header;
  const CompactHeader known;
  if (bytes.size() < sizeof(header)) return RefusedForm("it is shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != known.magic) return RefusedForm("no magic number at the start");
  if (header.version != known.version) {
    return RefusedForm(
        absl::StrCat("version ", header.version, ", this program reads version ", known.version));
  }
  if (header.is_change != (before.empty() ? 0u : 1u)) {
    return RefusedForm(before.empty() ? "it is a change of a vector that is not here"
                                      : "it is no change of a vector");
  }
  if (header.layout != layout->digest().bytes || layout->dtype() != DType::kF32) {
    return RefusedForm(
        "its layout is not the one expected: server and worker disagree about the model");
  }
  MACAW_ASSIGN_OR_RETURN(FlatVector vector, ReadBlocks(bytes, layout));
  if (!before.empty()) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> views,
                           DecodeVectors(before, {&layout, 1}));
    FlatVector changed = FlatVector::CopyOf(views[0], layout);
    AddChange(std::as_const(vector).view(), changed.view());
    vector = std::move(changed);
  }
  const ConstVectorView view = std::as_const(vector).view();
  return EncodeVectors({&view, 1});
}

}  // namespace macaw::fleet
