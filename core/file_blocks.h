#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "core/buffer.h"
#include "core/fd.h"

// Large blocks that lie in files (KeepLargeBlocksIn in page_pool.h). Their space on the disk can be
// taken when a piece is written, and given back when a piece has been read for the last time. So
// two vectors of which one is made from the other take the space of one. And a process keeps in
// memory what it is reading or writing, and not what it has passed. Thread-safe.
namespace macaw {

// A buffer with arbitrary contents. Where it lies in a file, it takes no space before TakeSpace.
// Throws std::bad_alloc, as AlignedBuffer does.
AlignedBuffer UnsetWithoutSpace(size_t size);

// Before `piece` of such a buffer is written: takes its space, and that of all before it. Where the
// disk has no room left, the bytes that follow lie in memory. Does nothing for another buffer.
// Throws std::bad_alloc.
void TakeSpace(std::span<const std::byte> piece);

// Gives back the space of the whole pages in `piece`, which then has no contents and must not be
// written before its owner has taken space again. Does nothing for what lies in no file.
void GiveUpSpace(std::span<const std::byte> piece);

// The piece is needed next only later: its whole pages leave this process's memory, and the system
// keeps their contents in its cache while it has room. Does nothing for what lies in no file.
void LeaveToCache(std::span<const std::byte> piece);

// Whether it lies in a file whose owner takes space before each use: in a buffer as above, or in
// memory that is shared with a program (SharedMemory::Reserve).
bool TakesSpaceFirst(const std::byte* data);

// Copies pieces, one behind the other, to a place that has its space. What lies in a file is
// written to the file: for a store into a page that is not in memory the system takes a fault,
// clears or reads the page, and takes a fault once more. Neither may overlap `to`.
void Overwrite(std::byte* to, std::span<const std::span<const std::byte>> pieces);
void Overwrite(std::byte* to, std::span<const std::byte> from);

// The same of what is computed: `make` writes what belongs at `at` into `piece`, which is a part of
// `to`, or memory in its place. From the beginning of `to` on, all of it once.
void OverwriteWith(std::span<std::byte> to,
                   absl::FunctionRef<void(size_t at, std::span<std::byte> piece)> make);

// For the owners of mappings: the functions above know the mapping of `file` until it is forgotten,
// which happens before it is unmapped.
enum class Space : uint8_t { kTaken, kTakenFirst };  // when: with the mapping, or before each use
void KnowFileBlock(const std::byte* data, size_t bytes, Fd file, Space space);
void ForgetFileBlock(const std::byte* data);
// Whether a block may be used again as it is: false for one that takes its space before each use,
// and for one that has given some up.
bool HasItsSpace(const std::byte* data);

}  // namespace macaw
