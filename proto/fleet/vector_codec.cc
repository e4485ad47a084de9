#include "proto/fleet/vector_codec.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/parallel_for.h"

namespace macaw::fleet {
namespace {

// u64 magic, u32 version, u32 count, then 40 bytes a vector (digest, u64 size in bytes), then the
// vectors.
constexpr uint64_t kMagic = 0x4345'5657'4143'414d;  // "MACAWVEC" in memory
constexpr uint32_t kVersion = 1;
constexpr size_t kFixed = 16, kPerVector = 40, kBoundary = 64;

static_assert(std::endian::native == std::endian::little, "vectors travel in memory order");

constexpr uint64_t Aligned(uint64_t n) { return (n + kBoundary - 1) / kBoundary * kBoundary; }

template <typename T>
void Put(std::span<std::byte> out, size_t at, const T& value) {
  std::memcpy(out.data() + at, &value, sizeof(value));
}
template <typename T>
T Get(std::span<const std::byte> in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof(value));
  return value;
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

AlignedBuffer EncodeVectors(std::span<const ConstVectorView> vectors) {
  const uint64_t header = kFixed + kPerVector * vectors.size();
  uint64_t total = header;
  for (const ConstVectorView& v : vectors) total = Aligned(total) + v.bytes.size();
  AlignedBuffer buffer = AlignedBuffer::Shareable(total);
  const std::span<std::byte> out = buffer.bytes();
  Put(out, 0, kMagic);
  Put(out, 8, kVersion);
  Put(out, 12, static_cast<uint32_t>(vectors.size()));
  uint64_t at = header;
  for (size_t i = 0; i < vectors.size(); ++i) {
    const ConstVectorView& v = vectors[i];
    Put(out, kFixed + i * kPerVector, v.layout->digest().bytes);
    Put(out, kFixed + i * kPerVector + 32, static_cast<uint64_t>(v.bytes.size()));
    std::memset(out.data() + at, 0, Aligned(at) - at);
    at = Aligned(at);
    ParallelCopy(v.bytes, out.data() + at);
    at += v.bytes.size();
  }
  return buffer;
}

absl::StatusOr<std::vector<ConstVectorView>> DecodeVectors(std::span<const std::byte> bytes,
                                                           std::span<const LayoutPtr> layouts) {
  const auto refuse = [](auto&&... what) {
    return absl::InvalidArgumentError(absl::StrCat("encoded vectors: ", what...));
  };
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kBoundary != 0) {
    return refuse("the bytes must begin on a 64-byte boundary (keep them in an AlignedBuffer)");
  }
  if (bytes.size() < kFixed) return refuse("only ", bytes.size(), " bytes, no room for a header");
  if (Get<uint64_t>(bytes, 0) != kMagic) return refuse("no magic number at the start");
  if (const auto version = Get<uint32_t>(bytes, 8); version != kVersion) {
    return refuse("version ", version, ", this program reads version ", kVersion);
  }
  if (const auto count = Get<uint32_t>(bytes, 12); count != layouts.size()) {
    return refuse(count, " vectors where ", layouts.size(), " are expected");
  }
  const uint64_t header = kFixed + kPerVector * layouts.size();
  if (bytes.size() < header) return refuse("the header is cut off");

  std::vector<ConstVectorView> views;
  views.reserve(layouts.size());
  uint64_t at = header;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const ParameterLayout& layout = *layouts[i];
    const size_t entry = kFixed + i * kPerVector;
    if (std::memcmp(bytes.data() + entry, layout.digest().bytes.data(), 32) != 0) {
      return refuse("vector ", i, " has another layout than the one expected (digest ",
                    layout.digest().Hex(), "): server and worker disagree about the model");
    }
    if (const auto size = Get<uint64_t>(bytes, entry + 32); size != layout.bytes()) {
      return refuse("vector ", i, " claims ", size, " bytes, its layout has ", layout.bytes());
    }
    const uint64_t begin = Aligned(at);
    if (begin > bytes.size() || layout.bytes() > bytes.size() - begin) {
      return refuse("vector ", i, " is cut off at byte ", bytes.size());
    }
    if (!AllZero(bytes.subspan(at, begin - at)))
      return refuse("padding before vector ", i, " is not zero");
    views.push_back({&layout, bytes.subspan(begin, layout.bytes())});
    at = begin + layout.bytes();
  }
  if (at != bytes.size()) return refuse(bytes.size() - at, " bytes after the last vector");
  return views;
}

uint64_t EncodedBytes(std::span<const LayoutPtr> layouts) {
  uint64_t total = kFixed + kPerVector * layouts.size();
  for (const LayoutPtr& layout : layouts) total = Aligned(total) + layout->bytes();
  return total;
}

static_assert(kVectorHeader == Aligned(kFixed + kPerVector));

std::array<std::byte, kVectorHeader> HeaderOf(const ParameterLayout& layout) {
  std::array<std::byte, kVectorHeader> header{};
  Put(header, 0, kMagic);
  Put(header, 8, kVersion);
  Put(header, 12, uint32_t{1});
  Put(header, kFixed, layout.digest().bytes);
  Put(header, kFixed + 32, layout.bytes());
  return header;
}

bool Holds(std::span<const std::byte> bytes, const ConstVectorView& vector) {
  constexpr uint64_t kBegin = kVectorHeader;
  return bytes.size() == kBegin + vector.bytes.size() &&
         Get<decltype(Digest::bytes)>(bytes, kFixed) == vector.layout->digest().bytes &&
         (vector.bytes.empty() ||
          std::memcmp(bytes.data() + kBegin, vector.bytes.data(), vector.bytes.size()) == 0);
}

}  // namespace macaw::fleet
