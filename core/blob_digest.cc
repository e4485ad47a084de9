#include "core/blob_digest.h"

#include <sodium.h>

#include <algorithm>

#include "core/digest_lanes.h"
#include "core/parallel_for.h"

namespace macaw {
namespace {

uint64_t LeavesOf(uint64_t size) { return (size + kBlobLeafBytes - 1) / kBlobLeafBytes; }

// What BlobDigester hashes at once: whole groups of leaves on every instruction set.
constexpr uint64_t kStepBytes = 16 * kBlobLeafBytes;

// The digests of whole leaves, and perhaps a shorter one at the end.
std::vector<Digest> HashLeaves(Isa isa, std::span<const std::byte> bytes) {
  std::vector<const std::byte*> whole;
  for (size_t at = 0; bytes.size() - at >= kBlobLeafBytes; at += kBlobLeafBytes)
    whole.push_back(bytes.data() + at);
  std::vector<Digest> leaves = DigestsOfEqualLength(isa, whole, kBlobLeafBytes);
  const auto rest = bytes.subspan(whole.size() * kBlobLeafBytes);
  if (!rest.empty()) leaves.push_back(DigestOf(rest));
  return leaves;
}

// The same on threads.
std::vector<Digest> HashLeavesWith(Isa isa, size_t threads, std::span<const std::byte> bytes) {
  std::vector<Digest> leaves(LeavesOf(bytes.size()));
  ParallelFor(
      leaves.size(), DigestLanes(isa),
      [&](size_t first, size_t end) {
        const auto rest = bytes.subspan(first * kBlobLeafBytes);
        const auto group = rest.first(std::min((end - first) * kBlobLeafBytes, rest.size()));
        std::ranges::copy(HashLeaves(isa, group), leaves.begin() + static_cast<ptrdiff_t>(first));
      },
      threads);
  return leaves;
}

// The name of a blob with these leaves.
Digest NameOf(uint64_t size, std::span<const Digest> leaves) {
  if (size == 0) return DigestOf(std::span<const std::byte>());
  if (leaves.size() == 1) return leaves[0];
  static constexpr unsigned char kRoot[] = "macaw blob root";
  static_assert(sizeof(kRoot) == crypto_generichash_blake2b_PERSONALBYTES);
  std::array<unsigned char, 8> length;
  for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(size >> (8 * i));
  crypto_generichash_blake2b_state hash;
  Digest root;
  crypto_generichash_blake2b_init_salt_personal(&hash, nullptr, 0, root.bytes.size(), nullptr,
                                                kRoot);
  crypto_generichash_blake2b_update(&hash, length.data(), length.size());
  for (const Digest& leaf : leaves)
    crypto_generichash_blake2b_update(&hash, leaf.bytes.data(), leaf.bytes.size());
  crypto_generichash_blake2b_final(&hash, root.bytes.data(), root.bytes.size());
  return root;
}

}  // namespace

Digest BlobDigest(std::span<const std::byte> bytes) {
  return BlobDigestWith(BestIsa(), SIZE_MAX, bytes);
}

Digest BlobDigestWith(Isa isa, size_t threads, std::span<const std::byte> bytes) {
  if (bytes.size() <= kBlobLeafBytes) return DigestOf(bytes);
  return NameOf(bytes.size(), HashLeavesWith(isa, threads, bytes));
}

std::vector<Digest> LeafDigests(std::span<const std::byte> bytes) {
  return HashLeavesWith(BestIsa(), SIZE_MAX, bytes);
}

Digest NameOfLeaves(uint64_t size, std::span<const Digest> leaves) { return NameOf(size, leaves); }

BlobDigester::BlobDigester(uint64_t size) : size_(size), wanted_(std::min(size, kStepBytes)) {
  leaves_.reserve(LeavesOf(size));
}

void BlobDigester::Add(std::span<const std::byte> arrived) {
  if (arrived.size() < wanted()) return;
  std::ranges::copy(HashLeaves(BestIsa(), arrived.subspan(hashed_, wanted_ - hashed_)),
                    std::back_inserter(leaves_));
  hashed_ = wanted_;
  wanted_ += std::min(size_ - wanted_, kStepBytes);
}

Digest BlobDigester::Finish() const { return NameOf(size_, leaves_); }

}  // namespace macaw
