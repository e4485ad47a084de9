#include "server/served_blobs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace macaw::server {
namespace {

// A blob of a few bytes that says it had `size`.
fleet::Blob BlobOf(uint64_t size, uint8_t number) {
  AlignedBuffer bytes(4);
  bytes.bytes()[0] = static_cast<std::byte>(number);
  fleet::Blob blob = fleet::Blob::Of(std::move(bytes));
  blob.size = size;
  return blob;
}

TEST(ServedBlobs, KeepsAFewSmallBroadcasts) {
  ServedBlobs served(std::nullopt);
  std::vector<Digest> digests;
  for (uint8_t round = 0; round < 6; ++round) {
    fleet::Blob blob = BlobOf(100, round);
    digests.push_back(blob.digest);
    served.Serve({std::move(blob)});
  }
  for (size_t i = 0; i < digests.size(); ++i)
    EXPECT_EQ(served.Find(digests[i]) != nullptr, i + ServedBlobs::kRecent >= digests.size()) << i;
}

TEST(ServedBlobs, ForgetsALargeOneThatNobodyHolds) {
  ServedBlobs served(std::nullopt);
  fleet::Blob first = BlobOf(ServedBlobs::kMostBytes + 1, 1);
  const Digest digest = first.digest;
  const std::weak_ptr<const AlignedBuffer> bytes = first.bytes;
  served.Serve({std::move(first)});
  EXPECT_NE(served.Find(digest), nullptr) << "the newest is kept, whatever its size";
  served.Serve({BlobOf(100, 2)});
  EXPECT_EQ(served.Find(digest), nullptr);
  EXPECT_TRUE(bytes.expired());
}

TEST(ServedBlobs, ServesALargeOneWhileAnEvaluationHoldsIt) {
  ServedBlobs served(std::nullopt);
  std::optional<fleet::Blob> evaluated = BlobOf(ServedBlobs::kMostBytes + 1, 1);
  const Digest digest = evaluated->digest;
  served.Serve({*evaluated});
  for (uint8_t round = 2; round < 9; ++round) served.Serve({BlobOf(100, round)});
  EXPECT_EQ(served.Find(digest), evaluated->bytes);
  evaluated.reset();
  EXPECT_EQ(served.Find(digest), nullptr);
}

TEST(ServedBlobs, ServesTheShortFormOfAForgottenOneWhileItIsHeld) {
  ServedBlobs served(std::nullopt);
  const fleet::Blob form = BlobOf(100, 7);
  fleet::Blob whole = BlobOf(ServedBlobs::kMostBytes + 1, 1);
  whole.compact.push_back({{}, form.digest, form.size, form.bytes});
  served.Serve({std::move(whole)});
  served.Serve({BlobOf(100, 2)});
  EXPECT_EQ(served.Find(form.digest), form.bytes);
}

}  // namespace
}  // namespace macaw::server
