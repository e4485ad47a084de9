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
#include "core/clock.h"
#include "core/fd.h"
#include "core/record_file.h"

// The beginnings of blobs that are being transferred, on disk, so that a transfer continues after a
// restart of the program. Does not use gRPC.
namespace macaw::wire {

class PartialFiles;

// The beginning of one blob: a sequence of frames (u64 length, u64 checksum, bytes). The bytes
// survive this process. A crash of the machine may lose or damage the last of them. One thread at a
// time, but Discard may be called by any.
class PartialFile {
 public:
  ~PartialFile();  // the file stays on disk, unless it was discarded
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // Fills the beginning of `blob` with the bytes of the file and returns how many these are. A
  // frame that is torn or damaged is cut off, with all frames after it. Call this once, before
  // Append.
  uint64_t Read(std::span<std::byte> blob);
  // Adds the bytes that follow. If they cannot be written the file is discarded: the transfer goes
  // on without it.
  void Append(std::span<const std::byte> bytes);
  // The blob is complete, or not wanted any more: removes the file.
  void Discard();

 private:
  friend class PartialFiles;
  struct Folder;
  PartialFile(std::shared_ptr<Folder> folder, std::string name, Fd fd);
  absl::Status AppendFrame(std::span<const std::byte> bytes);

  const std::shared_ptr<Folder> folder_;
  const std::string name_;
  RecordFile file_;
  bool failed_ = false;
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
