#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/fd.h"

namespace macaw {

// Where the bytes of a large block lie. kFile: in a memory file, which other processes can map.
enum class Pages : uint8_t { kPrivate, kFile };

// A large block of memory. A block in a memory file ends with its label: kLabelBytes that are zero
// until whoever shares the block writes them.
struct PageBlock {
  static constexpr size_t kLabelBytes = 64;
  static constexpr char kFileName[] = "macaw-buffer";  // of every memory file
  std::byte* data = nullptr;                           // null: there was no memory
  size_t bytes = 0;                                    // mapped
  int file = -1;                                       // of the memory file, or −1
  bool zero = false;                                   // known to be all zero
};

// Hands out large blocks and keeps those that were given back for the next request of the same size
// and kind. A round asks for the same sizes as the round before it, and the system takes longer to
// find and clear pages than a model takes to fill them (figures in core/README.md). Blocks that
// nobody asks for go back to the system. Thread-safe.
class PagePool {
 public:
  static constexpr size_t kMostBytes = size_t{256} << 20;

  // Keeps at most that many bytes; 0: none.
  explicit PagePool(size_t most_bytes = kMostBytes);
  PagePool(const PagePool&) = delete;  // and never destroyed: buffers may outlive other objects
  PagePool& operator=(const PagePool&) = delete;

  // `bytes` is rounded up to whole pages. kPrivate starts at a huge page's boundary. Null data when
  // the system has none; of kFile also where it has no such files.
  PageBlock Take(size_t bytes, Pages pages) ABSL_LOCKS_EXCLUDED(mutex_);
  void Give(const PageBlock& block) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr uint64_t kPatience = 64;  // blocks given back since; some rounds' worth
  enum class Which : uint8_t { kSurplus, kAny };
  struct Kept {
    PageBlock block;
    uint64_t given = 0;  // the number of blocks given back before this one
  };

  PageBlock TakeKept(size_t bytes, Pages pages) ABSL_LOCKS_EXCLUDED(mutex_);
  // False when there was none to unmap.
  bool UnmapOldest(Which which) ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t most_bytes_;
  absl::Mutex mutex_;
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t given_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The one of this process.
PagePool& ThePagePool();

// From now on private blocks of `from` bytes and more lie in files of this folder: the system
// writes their pages back where memory is short, and reads them when they are used. The files have
// no name and go with their blocks, also when the process is killed. Where the folder has no room
// left, a block is in memory, as without this. An error: the folder takes no such files. Once,
// before other threads use the pool.
absl::Status KeepLargeBlocksIn(const std::string& folder, size_t from);
// Whether blocks of this size are meant to lie in files.
bool LiesInFiles(size_t bytes);
// An empty file without a name where such blocks lie. Not open: they do not, or the folder takes
// none.
Fd UnnamedFileFor(size_t bytes);

}  // namespace macaw
