#include "core/blob_digest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/digest_lanes.h"
#include "core/random.h"

namespace macaw {
namespace {

constexpr uint64_t kLeaf = kBlobLeafBytes;

std::vector<std::byte> RandomBytes(size_t size, uint64_t seed) {
  std::vector<uint64_t> words(size / 8 + 1);
  RandomStream({.seed = seed}).FillU64(words);
  const auto bytes = std::as_bytes(std::span(words)).first(size);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> CountedBytes(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

// Sizes around a leaf, around a group of leaves, and with a short leaf at the end.
std::vector<size_t> Sizes() {
  return {0,
          1,
          127,
          128,
          129,
          kLeaf - 1,
          kLeaf,
          kLeaf + 1,
          2 * kLeaf,
          3 * kLeaf + 5,
          8 * kLeaf,
          8 * kLeaf + 1,
          9 * kLeaf,
          10 * kLeaf - 1,
          17 * kLeaf + 12345};
}

class OnEachInstructionSet : public testing::TestWithParam<Isa> {};

// The values of b2sum -l 256, which digest_test.cc checks for libsodium.
TEST_P(OnEachInstructionSet, EqualTextsBesideEachOtherHaveTheDigestOfRfc7693) {
  const std::string abc = "abc";
  const std::vector<const std::byte*> texts(8, BytesOf(abc).data());
  for (const Digest& digest : DigestsOfEqualLength(GetParam(), texts, 3)) {
    EXPECT_EQ(digest.Hex(), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  }
  for (const Digest& digest : DigestsOfEqualLength(GetParam(), texts, 0)) {
    EXPECT_EQ(digest.Hex(), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  }
}

TEST_P(OnEachInstructionSet, EveryLaneAgreesWithLibsodium) {
  const auto bytes = RandomBytes(20 * 5000, 1);
  RandomStream random({.seed = 2});
  for (int repeat = 0; repeat < 300; ++repeat) {
    const size_t length = random.Below(repeat < 150 ? 300 : 4000);
    const size_t count = random.Below(20);
    std::vector<const std::byte*> texts;
    for (size_t i = 0; i < count; ++i)
      texts.push_back(bytes.data() + random.Below(bytes.size() - length));  // at any address
    const std::vector<Digest> digests = DigestsOfEqualLength(GetParam(), texts, length);
    ASSERT_EQ(digests.size(), count);
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(digests[i], DigestOf(std::span(texts[i], length)))
          << length << " bytes, text " << i;
  }
}

TEST_P(OnEachInstructionSet, ABlobHasOneNameForAnyNumberOfThreads) {
  for (const size_t size : Sizes()) {
    const auto bytes = RandomBytes(size + 1, size);
    const auto unaligned = std::span(bytes).subspan(1);
    const Digest name = BlobDigestWith(SupportedIsas().back(), 1, unaligned);
    for (const size_t threads : {1, 2, 5})
      EXPECT_EQ(BlobDigestWith(GetParam(), threads, unaligned), name) << size;
    EXPECT_EQ(BlobDigest(unaligned), name) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(OnEach, OnEachInstructionSet, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(BlobDigest, OfASmallBlobIsItsPlainDigest) {
  for (const size_t size : Sizes()) {
    const auto bytes = RandomBytes(size, 3);
    EXPECT_EQ(BlobDigest(bytes) == DigestOf(bytes), size <= kLeaf) << size;
  }
}

// Values of Python: hashlib.blake2b(size as 8 bytes + digests of the leaves, digest_size=32,
// person=b"macaw blob root\0").
TEST(BlobDigest, OfALargeBlobIsThatOfItsLeavesAndSize) {
  EXPECT_EQ(BlobDigest(CountedBytes(kLeaf + 1)).Hex(),
            "c4144ccdcfa6d2e491a6ed07e07bca652771d40ab5a412dc34b39d417cf9d506");
  EXPECT_EQ(BlobDigest(CountedBytes(9 * kLeaf + 5)).Hex(),
            "f0cb71d2ae73a5ddc790d1e0161458f025ff739cefac667a24e2d5b34eab4a63");
}

TEST(BlobDigest, ChangesWithEveryLeafAndWithTheirOrder) {
  const auto bytes = RandomBytes(3 * kLeaf + 7, 4);
  const Digest name = BlobDigest(bytes);
  for (const size_t at : {size_t{0}, size_t{kLeaf}, size_t{3 * kLeaf - 1}, bytes.size() - 1}) {
    auto other = bytes;
    other[at] ^= std::byte{1};
    EXPECT_NE(BlobDigest(other), name) << at;
  }
  auto swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + kLeaf, swapped.begin() + kLeaf);
  EXPECT_NE(BlobDigest(swapped), name);
  EXPECT_NE(BlobDigest(std::span(bytes).first(3 * kLeaf)), name);
}

// A small blob can hold any text, also the one over which the root of a large blob is taken.
TEST(BlobDigest, OfALargeBlobIsNotThatOfASmallOneWithTheRootsText) {
  const auto bytes = RandomBytes(2 * kLeaf, 5);
  Digester plain;
  plain.Add(uint64_t{bytes.size()});
  for (const size_t at : {size_t{0}, size_t{kLeaf}}) {
    const Digest leaf = DigestOf(std::span(bytes).subspan(at, kLeaf));
    plain.Add(std::as_bytes(std::span(leaf.bytes)));
  }
  EXPECT_NE(BlobDigest(bytes), plain.Finish());
}

TEST(BlobDigester, NamesABlobThatArrivesInPieces) {
  RandomStream random({.seed = 6});
  for (const size_t size : Sizes()) {
    const auto bytes = RandomBytes(size, size);
    BlobDigester digester(size);
    for (size_t arrived = 0; arrived < size;) {
      EXPECT_FALSE(digester.done()) << size;
      arrived = std::min(size, arrived + 1 + random.Below(2 * kLeaf));
      while (arrived >= digester.wanted()) digester.Add(std::span(bytes).first(arrived));
    }
    ASSERT_TRUE(digester.done()) << size;
    EXPECT_EQ(digester.Finish(), BlobDigest(bytes)) << size;
  }
}

TEST(BlobDigester, HashesAFewLeavesACallAndNoneTwice) {
  const size_t size = 40 * kLeaf + 9;
  const auto bytes = RandomBytes(size, 7);
  BlobDigester digester(size);
  for (uint64_t before = 0; !digester.done();) {
    const uint64_t wanted = digester.wanted();
    EXPECT_GT(wanted, before);
    EXPECT_LE(wanted, before + 16 * kLeaf);
    digester.Add(std::span(bytes).first(wanted - 1));
    EXPECT_EQ(digester.wanted(), wanted) << "a byte is missing";
    digester.Add(bytes);
    before = wanted;
  }
  digester.Add(bytes);
  EXPECT_EQ(digester.Finish(), BlobDigest(bytes));
}

}  // namespace
}  // namespace macaw
