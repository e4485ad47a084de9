#include "proto/wire/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "core/fd.h"
#include "core/random.h"

namespace macaw::wire {
namespace {

using fleet::Blob;
using fleet::SharedPlace;

constexpr size_t kMiB = size_t{1} << 20;

Blob BlobOf(size_t size) {
  AlignedBuffer buffer = AlignedBuffer::Shareable(size);
  RandomStream({.seed = size}).FillU64(buffer.As<uint64_t>());
  return Blob::Of(std::move(buffer));
}

bool Maps(const SharedPlace& place, const Digest& digest, size_t size) {
  const auto mapped = MapShared(place, digest, size);
  EXPECT_TRUE(mapped.ok() || absl::IsNotFound(mapped.status())) << mapped.status();
  return mapped.ok();
}

TEST(SharedMemory, AMappingOutlivesTheOwner) {
  constexpr size_t kSize = 3 * kMiB + 24;
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const Fd read_end(told[0]), write_end(told[1]);
  const pid_t owner = fork();
  if (owner == 0) {
    const Blob blob = BlobOf(kSize);
    const SharedPlace place = PublishShared(blob).value_or(SharedPlace());
    if (write(told[1], &place, sizeof(place)) != sizeof(place) ||
        write(told[1], &blob.digest, sizeof(blob.digest)) != sizeof(blob.digest)) {
      _exit(1);
    }
    pause();
  }
  SharedPlace place;
  Digest digest;
  ASSERT_EQ(read(told[0], &place, sizeof(place)), static_cast<ssize_t>(sizeof(place)));
  ASSERT_EQ(read(told[0], &digest, sizeof(digest)), static_cast<ssize_t>(sizeof(digest)));
  EXPECT_EQ(place.process, owner);
  const auto mapped = MapShared(place, digest, kSize);
  kill(owner, SIGKILL);
  ASSERT_EQ(waitpid(owner, nullptr, 0), owner);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(BlobDigest((*mapped)->bytes()), digest);
  // Only the owner can pass it on.
  EXPECT_FALSE(PublishShared({digest, kSize, *mapped}).has_value());
  EXPECT_FALSE(Maps(place, digest, kSize));
}

TEST(SharedMemory, MayBePublishedAgain) {
  const Blob blob = BlobOf(2 * kMiB);
  const SharedPlace place = PublishShared(blob).value();
  EXPECT_EQ(PublishShared(blob), place);
  EXPECT_TRUE(Maps(place, blob.digest, 2 * kMiB));
}

TEST(SharedMemory, IsReusedWhenNobodyReadsItAnyMore) {
  constexpr size_t kSize = 5 * kMiB + 24;  // no other test uses this size
  SharedPlace place;
  Digest digest;
  std::shared_ptr<const AlignedBuffer> reader;
  {
    const Blob blob = BlobOf(kSize);
    digest = blob.digest;
    place = PublishShared(blob).value();
    reader = *MapShared(place, digest, kSize);
  }
  {
    // While somebody reads, the bytes stay and the next buffer gets other memory.
    AlignedBuffer other = AlignedBuffer::Shareable(kSize);
    std::ranges::fill(other.bytes(), std::byte{1});
    EXPECT_EQ(BlobDigest(reader->bytes()), digest);
    EXPECT_TRUE(Maps(place, digest, kSize));
    const Blob others = Blob::Of(std::move(other));
    EXPECT_NE(PublishShared(others), place);
    reader.reset();
    const Blob again = BlobOf(kSize);
    EXPECT_EQ(again.bytes->memory_file(), place.file);
    EXPECT_FALSE(Maps(place, digest, kSize)) << "it is not published yet";
    EXPECT_EQ(PublishShared(again), place);
    EXPECT_FALSE(Maps(place, DigestOf("what was there before"), kSize));
    EXPECT_TRUE(Maps(place, digest, kSize));
  }
  // A reader could mistake bytes being written for the final ones.
  const AlignedBuffer open = AlignedBuffer::Shareable(kSize),
                      second = AlignedBuffer::Shareable(kSize);
  EXPECT_FALSE(Maps(place, digest, kSize));
}

TEST(SharedMemory, SmallAndOrdinaryBuffersAreNotShared) {
  EXPECT_FALSE(PublishShared(BlobOf(kMiB / 8 - 8)).has_value());
  EXPECT_FALSE(PublishShared(Blob::Of(AlignedBuffer(8 * kMiB))).has_value());
  EXPECT_FALSE(PublishShared(Blob{.digest = DigestOf("only a name"), .size = 11}).has_value());
}

TEST(SharedMemory, RefusesToMapWhatIsNoBlobOfThatDigest) {
  const Blob blob = BlobOf(2 * kMiB), equally_large = BlobOf(2 * kMiB - 8);
  const Digest digest = blob.digest;
  const SharedPlace place = PublishShared(blob).value();
  ASSERT_TRUE(PublishShared(equally_large).has_value());
  EXPECT_TRUE(Maps(place, digest, 2 * kMiB));
  // As if the owner had freed its buffer and its file number now belongs to another one.
  EXPECT_FALSE(Maps(place, equally_large.digest, 2 * kMiB));
  EXPECT_FALSE(Maps(place, digest, 2 * kMiB - 64));
  EXPECT_FALSE(Maps(place, digest, 2 * kMiB + 64));
  EXPECT_FALSE(Maps({.process = getpid(), .file = 99999}, digest, 2 * kMiB));
  EXPECT_FALSE(Maps({.process = 0, .file = 0}, digest, 2 * kMiB));
  EXPECT_FALSE(Maps(place, Digest(), 2 * kMiB));
  EXPECT_FALSE(Maps(place, digest, ~size_t{0}));

  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Fd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  EXPECT_FALSE(Maps({.process = getpid(), .file = read_end.get()}, digest, 2 * kMiB));
  // The right name and size, but the owner could shorten it while somebody reads it.
  const Fd loose(memfd_create("macaw-buffer", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(loose.get(), AlignedBuffer::MemoryFileBytes(2 * kMiB)), 0);
  ASSERT_EQ(pwrite(loose.get(), digest.bytes.data(), 32, 2 * kMiB), 32);
  EXPECT_FALSE(Maps({.process = getpid(), .file = loose.get()}, digest, 2 * kMiB));
}

TEST(SharedMemory, AFileThatWasReadBeforeIsMappedOnce) {
  constexpr size_t kSize = 6 * kMiB + 24;  // no other test uses this size
  const std::byte* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    AlignedBuffer buffer = AlignedBuffer::Shareable(kSize);
    std::ranges::fill(buffer.bytes(), static_cast<std::byte>(round));
    const Blob blob = Blob::Of(std::move(buffer));
    const SharedPlace place = PublishShared(blob).value();
    const auto mapped = MapShared(place, blob.digest, kSize);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(BlobDigest((*mapped)->bytes()), blob.digest) << "the bytes of this round";
    if (first == nullptr) first = (*mapped)->bytes().data();
    EXPECT_EQ((*mapped)->bytes().data(), first);
  }
}

TEST(SharedMemory, TwoReadersOfAFileDoNotHinderEachOther) {
  constexpr size_t kSize = 2 * kMiB + 24;
  const Blob blob = BlobOf(kSize);
  const SharedPlace place = PublishShared(blob).value();
  std::optional one = *MapShared(place, blob.digest, kSize);
  const auto two = *MapShared(place, blob.digest, kSize);
  one.reset();
  EXPECT_EQ(BlobDigest(two->bytes()), blob.digest);
}

}  // namespace
}  // namespace macaw::wire
