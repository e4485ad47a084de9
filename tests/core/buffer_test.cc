#include "core/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "core/page_pool.h"
#include "core/shared_memory.h"
#include "testing/temporary_folder.h"

namespace macaw {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

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

TEST(AlignedBuffer, IsEmptyAfterAMove) {
  AlignedBuffer from = AlignedBuffer::Shareable(2 * kMiB);
  const int file = from.memory_file();
  EXPECT_GE(file, 0);
  const AlignedBuffer to = std::move(from);
  EXPECT_EQ(to.memory_file(), file);
  EXPECT_EQ(from.memory_file(), -1);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(AlignedBuffer::Shareable(kMiB / 8 - 8).memory_file(), -1);
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
  // Neither does it keep more than a quarter of a gigabyte.
  for (size_t i = 0; i < 5; ++i) AlignedBuffer::Shareable(100 * kMiB + 64 * i);
  EXPECT_LE(files(), 2);
}

// How many mappings lie in files of this folder.
int MappedIn(const std::string& folder) {
  const std::string name = std::filesystem::path(folder).filename().string();
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += absl::StrContains(line, name) ? 1 : 0;
  return count;
}

// Ends with 0 if large buffers, and no others, lie in files that have no name any more.
void UseLargeBuffersInFiles(const std::string& folder) {
  const auto must = [](bool holds) {
    if (!holds) std::_Exit(1);
  };
  must(KeepLargeBlocksIn(folder, 6 * kMiB).ok());
  const AlignedBuffer small(5 * kMiB);
  must(MappedIn(folder) == 0);
  AlignedBuffer large(9 * kMiB + 1);
  must(MappedIn(folder) == 1);
  must(std::filesystem::is_empty(folder));
  must(std::ranges::all_of(large.bytes(), [](std::byte b) { return b == std::byte{}; }));
  std::ranges::fill(large.bytes(), std::byte{7});
  must(AlignedBuffer::Shareable(9 * kMiB).memory_file() == -1);
  must(AlignedBuffer::Shareable(2 * kMiB).memory_file() >= 0);
  large = AlignedBuffer();
  const AlignedBuffer again(9 * kMiB + 1);
  must(std::ranges::all_of(again.bytes(), [](std::byte b) { return b == std::byte{}; }));
  const int before = MappedIn(folder);
  const auto in_memory = SharedMemory::Make("test", 9 * kMiB);
  const auto shared = SharedMemory::Make("test", 9 * kMiB, Backing::kFileIfLarge);
  must(in_memory.ok() && shared.ok());
  must(MappedIn(folder) == before + 1);
  must((*shared)->Reserve(kMiB, 2 * kMiB).ok());
  must((*shared)->data()[2 * kMiB] == std::byte{});
  std::memset((*shared)->data() + kMiB, 7, 2 * kMiB);
  must(!(*shared)->Reserve(0, size_t{1} << 60).ok());
  std::_Exit(0);
}

TEST(AlignedBuffer, LargeOnesMayLieInFiles) {
  const testing_support::TemporaryFolder folder;
  EXPECT_EXIT(UseLargeBuffersInFiles(folder.path()), testing::ExitedWithCode(0), "");
  const absl::Status none = KeepLargeBlocksIn(folder / "none", kMiB);
  EXPECT_TRUE(absl::StrContains(none.message(), folder / "none")) << none;
  EXPECT_FALSE(LiesInFiles(100 * kMiB));
}

}  // namespace
}  // namespace macaw
