#include "core/buffer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "core/random.h"

namespace macaw {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Creates a buffer as a sender does: write, compute the digest, seal.
AlignedBuffer SealedBuffer(size_t size, Digest& digest) {
  AlignedBuffer buffer = AlignedBuffer::Shareable(size);
  RandomStream({.seed = size}).FillU64(buffer.As<uint64_t>());
  digest = DigestOf(std::as_const(buffer).bytes());
  buffer.Seal(digest);
  return buffer;
}

bool Maps(const SharedPlace& place, const Digest& digest, size_t size) {
  const auto mapped = AlignedBuffer::Map(place, digest, size);
  EXPECT_TRUE(mapped.ok() || absl::IsNotFound(mapped.status())) << mapped.status();
  return mapped.ok();
}

TEST(AlignedBuffer, IsAlignedAndZeroWhateverItsSize) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{64}, size_t{4097}, kMiB - 1, 4 * kMiB - 1,
                            4 * kMiB, 4 * kMiB + 1, 7 * kMiB + 4097}) {
    // Twice, because reused memory must be cleared, too.
    for (int i = 0; i < 2; ++i) {
      AlignedBuffer buffer(size);
      EXPECT_EQ(buffer.size(), size);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.bytes().data()) % 64, 0u);
      EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{}; }))
          << size;
      std::ranges::fill(buffer.bytes(), std::byte{7});
    }
  }
  EXPECT_THROW(AlignedBuffer::Unset(~size_t{0} - 100), std::bad_alloc);
  EXPECT_THROW(AlignedBuffer::Unset(size_t{1} << 60), std::bad_alloc);
}

TEST(AlignedBuffer, AMappingOutlivesTheOwner) {
  constexpr size_t kSize = 3 * kMiB + 24;
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    Digest digest;
    const AlignedBuffer buffer = SealedBuffer(kSize, digest);
    const SharedPlace place = buffer.place().value_or(SharedPlace());
    if (write(told[1], &place, sizeof(place)) != sizeof(place) ||
        write(told[1], &digest, sizeof(digest)) != sizeof(digest)) {
      _exit(1);
    }
    pause();
  }
  SharedPlace place;
  Digest digest;
  ASSERT_EQ(read(told[0], &place, sizeof(place)), static_cast<ssize_t>(sizeof(place)));
  ASSERT_EQ(read(told[0], &digest, sizeof(digest)), static_cast<ssize_t>(sizeof(digest)));
  EXPECT_EQ(place.process, owner);
  const auto mapped = AlignedBuffer::Map(place, digest, kSize);
  kill(owner, SIGKILL);
  ASSERT_EQ(waitpid(owner, nullptr, 0), owner);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(DigestOf((*mapped)->bytes()), digest);
  EXPECT_FALSE((*mapped)->place().has_value());  // only the owner can pass it on
  EXPECT_FALSE(Maps(place, digest, kSize));
  for (const int end : told) close(end);
}

TEST(AlignedBuffer, IsEmptyAfterAMove) {
  Digest digest;
  AlignedBuffer from = SealedBuffer(2 * kMiB, digest);
  const SharedPlace place = from.place().value();
  AlignedBuffer to = std::move(from);
  EXPECT_EQ(to.place(), place);
  EXPECT_FALSE(from.place().has_value());
  from.Seal(digest);  // has no effect
  to.Seal(DigestOf("once is enough"));
  EXPECT_TRUE(Maps(place, digest, 2 * kMiB));
}

TEST(AlignedBuffer, MemoryThatNobodyAsksForIsGivenBack) {
  const auto files = [] {
    int count = 0;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count +=
          absl::StrContains(std::filesystem::read_symlink(file, gone).string(), "macaw-buffer");
    }
    return count;
  };
  for (size_t i = 0; i < 200; ++i) AlignedBuffer::Shareable(kMiB + 64 * i);
  EXPECT_LE(files(), 70);
  // Neither does it keep more than half a gigabyte.
  for (size_t i = 0; i < 5; ++i) AlignedBuffer::Shareable(150 * kMiB + 64 * i);
  EXPECT_LE(files(), 3);
}

TEST(AlignedBuffer, ReusesMemoryWhenNobodyReadsItAnyMore) {
  constexpr size_t kSize = 5 * kMiB + 24;  // no other test uses this size
  Digest digest, next;
  SharedPlace place;
  std::shared_ptr<const AlignedBuffer> reader;
  {
    const AlignedBuffer buffer = SealedBuffer(kSize, digest);
    place = buffer.place().value();
    reader = *AlignedBuffer::Map(place, digest, kSize);
  }
  {
    // While somebody reads, the bytes stay and the next buffer gets other memory.
    AlignedBuffer other = AlignedBuffer::Shareable(kSize);
    std::ranges::fill(other.bytes(), std::byte{1});
    EXPECT_EQ(DigestOf(reader->bytes()), digest);
    EXPECT_TRUE(Maps(place, digest, kSize));
    other.Seal(next);
    EXPECT_NE(other.place(), place);
    reader.reset();
    const AlignedBuffer again = SealedBuffer(kSize, next);
    EXPECT_EQ(again.place(), place);
    EXPECT_FALSE(Maps(place, DigestOf("what was there before"), kSize));
    EXPECT_TRUE(Maps(place, next, kSize));
  }
  // Not sealed yet: a reader could mistake bytes being written for the final ones.
  AlignedBuffer open = AlignedBuffer::Shareable(kSize), second = AlignedBuffer::Shareable(kSize);
  EXPECT_FALSE(Maps(place, digest, kSize));
  EXPECT_FALSE(Maps(place, next, kSize));
}

TEST(AlignedBuffer, CannotBeMappedBeforeItIsSealedOrWhenItIsSmall) {
  const AlignedBuffer open = AlignedBuffer::Shareable(2 * kMiB);
  EXPECT_FALSE(open.place().has_value());
  Digest digest;
  EXPECT_FALSE(SealedBuffer(kMiB - 8, digest).place().has_value());
  AlignedBuffer ours = AlignedBuffer::Unset(8 * kMiB);
  ours.Seal(digest);
  EXPECT_FALSE(ours.place().has_value());
}

TEST(AlignedBuffer, RefusesToMapWhatIsNoSealedBufferOfThatDigest) {
  Digest digest, other;
  const AlignedBuffer buffer = SealedBuffer(2 * kMiB, digest);
  const AlignedBuffer equally_large = SealedBuffer(2 * kMiB - 8, other);
  const SharedPlace place = buffer.place().value();
  EXPECT_TRUE(Maps(place, digest, 2 * kMiB));
  // As if the owner had freed its buffer and its file number now belongs to another one.
  EXPECT_FALSE(Maps(place, other, 2 * kMiB));
  EXPECT_FALSE(Maps(place, digest, 2 * kMiB - 64));
  EXPECT_FALSE(Maps(place, digest, 2 * kMiB + 64));
  EXPECT_FALSE(Maps({.process = getpid(), .file = 99999}, digest, 2 * kMiB));
  EXPECT_FALSE(Maps({.process = 0, .file = 0}, digest, 2 * kMiB));
  EXPECT_FALSE(Maps(place, Digest(), 2 * kMiB));
  EXPECT_FALSE(Maps(place, digest, ~size_t{0}));

  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_FALSE(Maps({.process = getpid(), .file = pipe_ends[0]}, digest, 2 * kMiB));
  // The right name and size, but the owner could shorten it while somebody reads it.
  const int loose = memfd_create("macaw-buffer", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(loose, 2 * kMiB + 32), 0);
  ASSERT_EQ(pwrite(loose, digest.bytes.data(), 32, 2 * kMiB), 32);
  EXPECT_FALSE(Maps({.process = getpid(), .file = loose}, digest, 2 * kMiB));
  for (const int file : {pipe_ends[0], pipe_ends[1], loose}) close(file);
}

TEST(AlignedBufferDeathTest, AWriteAfterSealCrashes) {
  Digest digest;
  AlignedBuffer buffer = SealedBuffer(2 * kMiB, digest);
  EXPECT_DEATH(buffer.bytes()[0] = std::byte{1}, "");
}

}  // namespace
}  // namespace macaw
