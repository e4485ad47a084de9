#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/fd.h"

namespace macaw {

// Every error names the path and the system's reason. All functions are thread-safe.

// "cannot open /some/file: No such file or directory"
absl::Status FileError(absl::string_view what, absl::string_view path, int error = errno);

absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::StatusOr<uint64_t> FileSize(const std::string& path);
bool FileExists(const std::string& path);
// Why FileExists is false. The error is `missing` if the file is not there, and "cannot open
// /some/file: Permission denied" if nobody can tell, as below a folder that may not be entered.
absl::Status MissingFile(const std::string& path, absl::string_view missing);
// Creates the folder and all folders above it. New folders survive a crash of the machine.
absl::Status MakeDirectories(const std::string& path);

// Replaces `path` atomically: a reader, and a crash at any moment, sees either the old bytes or the
// new ones. The bytes are written to a temporary file, fsynced and renamed; then the folder is
// fsynced.
absl::Status AtomicWriteFile(const std::string& path, std::span<const std::byte> bytes);
absl::Status AtomicWriteFile(const std::string& path, absl::string_view text);

// The same for files that are too large to build in memory first. Bytes are written at any offset
// of a temporary file; Commit syncs and renames it. Destruction without Commit removes it. What
// killed writers of this file have left is removed by the next one. Movable; one thread.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept = default;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  absl::Status Commit() &&;

 private:
  AtomicFile() = default;
  std::string path_;
  std::string aside_;
  Fd fd_;  // closed once the file has its name
};

absl::Status SyncDirectory(const std::string& path);

// A whole file, mapped read-only and shared with every process that maps it. Movable. The bytes
// live as long as this object.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// How the bytes of a mapped file will be read. kUsual: the system reads ahead. kScattered: it does
// not, because single rows are read and reading ahead would fetch megabytes for one page. A hint
// only.
enum class Access : uint8_t { kUsual, kScattered };
void Advise(std::span<const std::byte> mapped, Access access);

// An append-only text file (metrics.jsonl, events.jsonl). One owner, one thread. Each line is
// written with one system call, so after a crash of the process it is there completely or not at
// all.
class LineFile {
 public:
  enum class Tail : uint8_t { kCut, kWriteOver };

  // Goes on behind the first `keep_bytes` of an existing file. A resumed run passes the size that
  // its checkpoint recorded. kWriteOver: what follows stays until it is written over, for a caller
  // that will write the same lines again and may die before.
  static absl::StatusOr<LineFile> Open(const std::string& path, uint64_t keep_bytes,
                                       Tail tail = Tail::kCut);
  absl::Status Append(absl::string_view line);  // adds the newline
  absl::Status Sync();
  absl::Status CutTail();  // what lies behind the last line
  uint64_t offset() const { return offset_; }

 private:
  LineFile() = default;
  std::string path_;
  Fd fd_;
  uint64_t offset_ = 0;
};

}  // namespace macaw
