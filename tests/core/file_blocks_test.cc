#include "core/file_blocks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/memory.h"
#include "core/page_pool.h"
#include "core/passed_bytes.h"
#include "core/shared_memory.h"
#include "testing/disk_space.h"
#include "testing/small_disk.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

using testing_support::BytesOnDisk;

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr size_t kPiece = 4 * kMegabyte;

bool AllAre(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte(value); });
}

// The setting is the process's, so each of these functions has a process of its own. It ends with 0
// if all holds, and says else what does not.
void Must(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what.c_str());
  std::_Exit(1);
}

// Makes a vector of 64 MiB from another one, which goes meanwhile.
AlignedBuffer Move(const std::string& folder, AlignedBuffer from, uint64_t* most) {
  AlignedBuffer to = UnsetWithoutSpace(from.size());
  for (size_t at = 0; at < from.size(); at += kPiece) {
    const size_t count = std::min(kPiece, from.size() - at);
    TakeSpace(to.bytes().subspan(at, count));
    std::memcpy(to.bytes().data() + at, from.bytes().data() + at, count);
    GiveUpSpace(std::as_const(from).bytes().subspan(at, count));
    *most = std::max(*most, BytesOnDisk(folder));
  }
  return to;
}

void MakeOneOfTheOther(const std::string& folder) {
  Must(KeepLargeBlocksIn(folder, 6 * kMegabyte).ok(), "the folder takes files");
  AlignedBuffer from = AlignedBuffer::Unset(64 * kMegabyte + 777);
  std::ranges::fill(from.bytes(), std::byte{7});
  const std::byte* const place = from.bytes().data();
  const uint64_t one = BytesOnDisk(folder);
  Must(one >= 64 * kMegabyte && one <= 66 * kMegabyte, "a block has all of its space");
  Must(HasItsSpace(place) && !TakesSpaceFirst(place), "it has its space from the beginning");
  uint64_t most = 0;
  const AlignedBuffer to = Move(folder, std::move(from), &most);
  Must(AllAre(to.bytes(), 7), "nothing is lost");
  Must(most <= one + 20 * kMegabyte, "both together take the space of one, and of a step");
  Must(BytesOnDisk(folder) <= one + kMegabyte, "the first one has gone");
  Must(TakesSpaceFirst(to.bytes().data() + kMegabyte), "the second one takes its space first");
  // What is made next has its space, and does not lie in a block with holes.
  const AlignedBuffer next(64 * kMegabyte + 777);
  Must(AllAre(next.bytes(), 0), "a new block is zero");
  Must(BytesOnDisk(folder) >= 2 * one - kMegabyte, "a new block has all of its space");
  std::_Exit(0);
}

TEST(FileBlocks, AVectorMadeOfAnotherTakesTheSpaceOfOne) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(MakeOneOfTheOther(folder.path()), testing::ExitedWithCode(0), "");
}

// The pool keeps blocks of this size that are given back.
void UseAgain(const std::string& folder) {
  Must(KeepLargeBlocksIn(folder, 6 * kMegabyte).ok(), "the folder takes files");
  AlignedBuffer block = AlignedBuffer::Unset(8 * kMegabyte);
  GiveUpSpace(std::as_const(block).bytes().first(kMegabyte));
  Must(!HasItsSpace(block.bytes().data()), "a MiB was given up");
  block = AlignedBuffer();
  Must(BytesOnDisk(folder) == 0, "a block with holes is not kept");
  block = AlignedBuffer::Unset(8 * kMegabyte);
  Must(BytesOnDisk(folder) >= 8 * kMegabyte, "the next one has its space");
  block = AlignedBuffer();
  Must(BytesOnDisk(folder) >= 8 * kMegabyte, "a whole block is kept");
  std::_Exit(0);
}

TEST(FileBlocks, ABlockWithHolesIsNotUsedAgain) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(UseAgain(folder.path()), testing::ExitedWithCode(0), "");
}

void ShareWithAProgram(const std::string& folder) {
  Must(KeepLargeBlocksIn(folder, 6 * kMegabyte).ok(), "the folder takes files");
  const auto shared = SharedMemory::Make("test", 9 * kMegabyte, Backing::kFileIfLarge);
  Must(shared.ok() && (*shared)->Reserve(0, 9 * kMegabyte).ok(), "memory is shared in a file");
  std::byte* const data = (*shared)->data();
  Must(TakesSpaceFirst(data + kMegabyte), "its owner takes space before each use");
  std::memset(data, 7, 9 * kMegabyte);
  const std::span<const std::byte> bytes(data, 9 * kMegabyte);
  GiveUpSpace(bytes.subspan(kMegabyte + 5, 7 * kMegabyte));
  Must(BytesOnDisk(folder) <= 3 * kMegabyte, "most of it was given up");
  Must(AllAre(bytes.first(kMegabyte + 5), 7) && AllAre(bytes.subspan(8 * kMegabyte + 5), 7),
       "its neighbours stay");
  Must((*shared)->Reserve(0, 9 * kMegabyte).ok(), "it is taken again");
  Must(BytesOnDisk(folder) >= 9 * kMegabyte, "all of it");
  std::memset(data, 8, 9 * kMegabyte);
  Must(AllAre(bytes, 8), "it is as good as before");
  GiveUpSpace(bytes.first(9 * kMegabyte - 100));
  Must(AllAre(bytes.last(100), 8), "a page that is given up in part stays");
  const auto in_memory = SharedMemory::Make("test", 9 * kMegabyte);
  std::memset((*in_memory)->data(), 7, 9 * kMegabyte);
  GiveUpSpace({(*in_memory)->data(), 9 * kMegabyte});
  Must(AllAre({(*in_memory)->data(), 9 * kMegabyte}, 7), "what lies in no file stays");
  std::_Exit(0);
}

TEST(FileBlocks, MemoryThatIsSharedWithAProgramGivesItsSpaceUp) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(ShareWithAProgram(folder.path()), testing::ExitedWithCode(0), "");
}

void LeaveWhatHasBeenPassed(const std::string& folder) {
  Must(KeepLargeBlocksIn(folder, 6 * kMegabyte).ok(), "the folder takes files");
  AlignedBuffer block = AlignedBuffer::Unset(64 * kMegabyte + 777),
                small = AlignedBuffer::Unset(5 * kMegabyte);
  const auto mapped = [] { return *ProportionalSetSize(); };
  const uint64_t before = mapped();
  std::ranges::fill(block.bytes(), std::byte{7});
  std::ranges::fill(small.bytes(), std::byte{7});
  Must(mapped() >= before + 64 * kMegabyte, "what was written is in memory");
  PassedBytes passed(std::as_const(block).bytes());
  passed.Until(15 * kMegabyte);
  Must(mapped() >= before + 64 * kMegabyte, "a few megabytes stay");
  passed.Until(40 * kMegabyte);
  Must(mapped() <= before + 32 * kMegabyte, "what has been passed does not");
  passed.Until(block.size());
  Must(mapped() <= before + 8 * kMegabyte, "all has been passed");
  Must(AllAre(block.bytes(), 7), "its contents stay");
  LeaveToCache(std::as_const(small).bytes());
  Must(AllAre(small.bytes(), 7), "what lies in no file stays");
  std::_Exit(0);
}

TEST(FileBlocks, WhatHasBeenPassedTakesNoMemoryOfTheProcess) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(LeaveWhatHasBeenPassed(folder.path()), testing::ExitedWithCode(0), "");
}

// Bytes of which no two neighbours are equal, in many pieces, some of them empty.
std::vector<std::byte> Mixed(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 + i / 251);
  return bytes;
}
std::vector<std::span<const std::byte>> InPieces(std::span<const std::byte> bytes) {
  std::vector<std::span<const std::byte>> pieces;
  for (size_t at = 0, size = 0; at < bytes.size(); at += size, size = (size + 977) % 16411) {
    size = std::min(size, bytes.size() - at);
    pieces.push_back(bytes.subspan(at, size));
  }
  return pieces;
}

void OverwriteInFiles(const std::string& folder) {
  Must(KeepLargeBlocksIn(folder, 6 * kMegabyte).ok(), "the folder takes files");
  AlignedBuffer block = AlignedBuffer::Unset(64 * kMegabyte + 777);
  const std::vector<std::byte> bytes = Mixed(block.size() - 5000);
  std::byte* const to = block.bytes().data();
  std::memset(to, 9, 3000);
  const std::span<const std::byte> end = std::as_const(block).bytes().last(2000);
  std::memset(to + block.size() - 2000, 9, 2000);
  LeaveToCache(std::as_const(block).bytes());
  const uint64_t before = *ProportionalSetSize();
  Overwrite(to + 3000, InPieces(bytes));
  Must(*ProportionalSetSize() <= before + 8 * kMegabyte, "what was written takes no memory");
  const auto all_as_written = [&] {
    return AllAre({to, 3000}, 9) && AllAre(end, 9) &&
           std::equal(bytes.begin(), bytes.end(), to + 3000);
  };
  Must(all_as_written(), "all pieces are there, and their neighbours as they were");
  std::memset(to + 3000, 0, bytes.size());
  Overwrite(to + 3000, std::span(bytes));
  Must(all_as_written(), "one piece is there");
  std::memset(to + 3000, 0, bytes.size());
  size_t made = 0;
  OverwriteWith({to + 3000, bytes.size()}, [&](size_t at, std::span<std::byte> piece) {
    Must(at == made, "each piece follows the one before");
    made += piece.size();
    std::memcpy(piece.data(), bytes.data() + at, piece.size());
  });
  Must(made == bytes.size() && all_as_written(), "what is made is there");
  std::_Exit(0);
}

TEST(FileBlocks, WhatIsOverwrittenIsInTheFileAndNotInMemory) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(OverwriteInFiles(folder.path()), testing::ExitedWithCode(0), "");
}

// With room for one vector and a half; then for half a vector.
void UseASmallDisk() {
  const testing_support::SmallDisk disk(100 * kMegabyte);
  if (!disk.mounted()) std::_Exit(77);
  Must(KeepLargeBlocksIn(disk.path(), 6 * kMegabyte).ok(), "the folder takes files");
  AlignedBuffer from = AlignedBuffer::Unset(64 * kMegabyte);
  std::ranges::fill(from.bytes(), std::byte{7});
  uint64_t most = 0;
  const AlignedBuffer to = Move(disk.path(), std::move(from), &most);
  Must(AllAre(to.bytes(), 7), "nothing is lost");
  Must(BytesOnDisk(disk.path()) >= 64 * kMegabyte, "the second one lies on the disk");
  AlignedBuffer too_large = UnsetWithoutSpace(200 * kMegabyte);
  for (size_t at = 0; at < too_large.size(); at += kPiece) {
    TakeSpace(too_large.bytes().subspan(at, kPiece));
    std::memset(too_large.bytes().data() + at, 9, kPiece);
  }
  Must(AllAre(too_large.bytes(), 9) && AllAre(to.bytes(), 7), "the rest lies in memory");
  LeaveToCache(std::as_const(too_large).bytes());
  Must(AllAre(too_large.bytes(), 9), "what lies in memory stays there");
  GiveUpSpace(std::as_const(too_large).bytes());
  Must(BytesOnDisk(disk.path()) <= 66 * kMegabyte, "its beginning was on the disk, and has gone");
  AlignedBuffer in_both = UnsetWithoutSpace(64 * kMegabyte);
  TakeSpace(in_both.bytes().first(kPiece));
  TakeSpace(in_both.bytes());
  const std::vector<std::byte> bytes = Mixed(in_both.size());
  Overwrite(in_both.bytes().data(), InPieces(bytes));
  Must(BytesOnDisk(disk.path()) > 66 * kMegabyte, "its beginning is on the disk");
  Must(std::ranges::equal(in_both.bytes(), bytes), "a piece across the end of the file is whole");
  std::_Exit(0);
}

TEST(FileBlocks, AFullDiskPutsTheRestIntoMemory) {
  bool no_disk = false;
  const auto ended = [&](int status) {
    no_disk = WIFEXITED(status) && WEXITSTATUS(status) == 77;
    return no_disk || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
  };
  EXPECT_EXIT(UseASmallDisk(), ended, "");
  if (no_disk) GTEST_SKIP() << "no right to mount a tmpfs";
}

TEST(FileBlocks, WithoutTheSettingABufferIsInMemory) {
  AlignedBuffer buffer = UnsetWithoutSpace(9 * kMegabyte);
  TakeSpace(buffer.bytes());
  std::ranges::fill(buffer.bytes(), std::byte{7});
  GiveUpSpace(std::as_const(buffer).bytes());
  EXPECT_TRUE(AllAre(buffer.bytes(), 7));
  EXPECT_FALSE(TakesSpaceFirst(buffer.bytes().data()));
  EXPECT_TRUE(HasItsSpace(buffer.bytes().data()));
  const std::vector<std::byte> bytes = Mixed(buffer.size());
  Overwrite(buffer.bytes().data(), InPieces(bytes));
  EXPECT_TRUE(std::ranges::equal(buffer.bytes(), bytes));
  OverwriteWith(buffer.bytes(), [&](size_t at, std::span<std::byte> piece) {
    EXPECT_EQ(piece.data(), buffer.bytes().data() + at) << "it is made in its place";
    std::ranges::fill(piece, std::byte{8});
  });
  EXPECT_TRUE(AllAre(buffer.bytes(), 8));
}

}  // namespace
}  // namespace macaw
