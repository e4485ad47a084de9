#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/record_file.h"

// The beginnings of blobs that are being transferred, on disk, so that a transfer continues after a
// restart of the program. Does not use gRPC.
namespace macaw::wire {

class PartialFiles;

// The beginning of one blob. The bytes survive this process. A crash of the machine may lose or
// damage the last of them. One thread at a time, but Discard may be called by any. The file is a
// sequence of frames (u64 length, u64 checksum, bytes); or, of a blob that is to lie in a file
// (Map), the bytes themselves, and behind their last page a u64 checksum of each 64 KiB that are
// there.
class PartialFile {
 public:
  ~PartialFile();  // the file stays on disk, unless it was discarded
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // The blob's bytes in this file, so that they are on disk once: where large blocks lie in files
  // (core/page_pool.h) and the disk has room. Else empty. They are valid when the file has been
  // discarded, too. Call this before Read.
  AlignedBuffer Map(uint64_t bytes);
  // Fills the beginning of `blob` with the bytes of the file and returns how many these are. A
  // frame that is torn or damaged is cut off, with all frames after it. Call this once, before
  // Append. What Map gave is `blob`.
  uint64_t Read(std::span<std::byte> blob);
  // Adds the bytes that follow; those that Map gave are there, and live. If they cannot be written
  // the file is discarded: the transfer goes on without it.
  void Append(std::span<const std::byte> bytes);
  // The blob is complete, or not wanted any more: removes the file.
  void Discard();

 private:
  friend class PartialFiles;
  struct Folder;
  PartialFile(std::shared_ptr<Folder> folder, std::string name, Fd fd);
  absl::Status AppendFrame(std::span<const std::byte> bytes);
  void GiveUpUnless(const absl::Status& status);
  uint64_t ReadMapped() const;
  absl::Status AppendMapped(uint64_t bytes);

  const std::shared_ptr<Folder> folder_;
  const std::string name_;
  RecordFile file_;
  bool failed_ = false;
  std::span<const std::byte> mapped_;  // what Map gave
  uint64_t there_ = 0;                 // bytes of it
};

// A folder of such files. Thread-safe. Several processes may use the same folder.
class PartialFiles {
 public:
  struct Options {
    std::string folder;
    uint64_t budget_bytes = uint64_t{8} << 30;  // all files together
    // Files to which nothing was added for this long are removed.
    std::chrono::hours max_age{24};
  };
  // Makes the folder, if it is not there, for this user alone.
  static absl::StatusOr<std::unique_ptr<PartialFiles>> Open(const Options& options);

  // The file of this name, which is made if it is not there, for a blob of so many bytes. To make
  // room, files that nobody uses are removed, the oldest first. Null if there is no room, if
  // somebody uses the file, or if it cannot be opened: then the transfer does without it.
  std::shared_ptr<PartialFile> Take(const std::string& name, uint64_t blob_bytes);
  // Whether a PartialFile of this folder object uses the file.
  bool InUse(const std::string& name) const;
  // Removes the files that nobody uses and of whose names `wanted` says false.
  void Sweep(absl::FunctionRef<bool(const std::string& name)> wanted);
  // From now on no file is removed, because the next process is to continue with them.
  void Close();

 private:
  explicit PartialFiles(std::shared_ptr<PartialFile::Folder> folder);
  const std::shared_ptr<PartialFile::Folder> folder_;
};

}  // namespace macaw::wire
