#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/digest.h"
#include "core/isa.h"

// The name of a blob. Up to kBlobLeafBytes it is DigestOf(bytes). A larger blob is cut into leaves
// of kBlobLeafBytes, the last one perhaps shorter, and its name is the BLAKE2b-256 of its size and
// of the leaves' digests: a tree of two levels, whose leaves are hashed several at once.
//
// The root is hashed with a personalization. This parameter of BLAKE2b is no part of the text, so a
// root starts from another state than every DigestOf. A prefix of the text would not do: a small
// blob could consist of just that text. The size says how many leaves there are and how long the
// last one is. So two blobs have one name only if BLAKE2b has a collision.
namespace macaw {

inline constexpr uint64_t kBlobLeafBytes = 1 << 16;

// Uses the best instruction set, and a thread for each core where there is work for them: beyond
// the first DigestLanes leaves. Any thread may call it.
Digest BlobDigest(std::span<const std::byte> bytes);
// The same on one of SupportedIsas() and at most that many threads, the caller's included.
Digest BlobDigestWith(Isa isa, size_t threads, std::span<const std::byte> bytes);

// For a blob that is named again and again while most of its leaves stay: the digests of the leaves
// of some bytes, of which only the last leaf may be shorter, and the name of a blob by those of all
// its leaves.
std::vector<Digest> LeafDigests(std::span<const std::byte> bytes);
Digest NameOfLeaves(uint64_t size, std::span<const Digest> leaves);

// Names a blob while it arrives. The size is known from the start, and what has arrived stays where
// it is. Not thread-safe.
class BlobDigester {
 public:
  explicit BlobDigester(uint64_t size);

  // How many of the blob's bytes must have arrived before Add can go on; once it is done, more than
  // can ever arrive.
  uint64_t wanted() const { return done() ? UINT64_MAX : wanted_; }
  bool done() const { return hashed_ == size_; }
  uint64_t hashed() const { return hashed_; }
  // Hashes the next leaves if `arrived`, the blob's first bytes, has all of them. One call hashes
  // 1 MiB at most, which takes a millisecond or two.
  void Add(std::span<const std::byte> arrived);
  Digest Finish() const;  // once it is done

 private:
  const uint64_t size_;
  uint64_t hashed_ = 0;
  uint64_t wanted_ = 0;
  std::vector<Digest> leaves_;
};

}  // namespace macaw
