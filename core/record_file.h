#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/fd.h"

// How records are appended to a file: the log of rounds, the journal, the audit log, unfinished
// transfers, rows. Each of these files frames its records in its own way, because their readers ask
// for different things. What they share is here:
//
//   * The bytes before an offset, the end, belong to whole records. Only a reader of the format can
//     tell where it is. What follows the end was torn by a crash and is cut off before the next
//     record is written.
//   * A record is appended whole or not at all.
//   * An appended record survives the process. After Sync it survives a crash of the machine.
namespace macaw {

using Pieces = std::initializer_list<std::span<const std::byte>>;

// Writes one record, in pieces, at the end of the file. If it cannot be written whole, the file is
// cut back to `end`, so that the next record does not follow half a record. Errors name the path.
absl::Status AppendRecord(const Fd& fd, uint64_t end, Pieces pieces, absl::string_view path);

// Such a file. Movable; one thread.
class RecordFile {
 public:
  // Opens the file, or creates it with the permissions `mode`, and cuts it to `end` bytes.
  static absl::StatusOr<RecordFile> Open(const std::string& path, uint64_t end, mode_t mode = 0644);
  // A file that is open for writing. Nothing is cut.
  RecordFile(std::string path, Fd fd, uint64_t end = 0)
      : path_(std::move(path)), fd_(std::move(fd)), end_(end) {}
  RecordFile() = default;  // no file

  const std::string& path() const { return path_; }
  const Fd& fd() const { return fd_; }
  uint64_t end() const { return end_; }

  // Whole records end here, as a reader has found.
  void EndAt(uint64_t end) { end_ = end; }
  absl::Status CutTail();  // what follows the end
  absl::Status Append(Pieces pieces);
  // Does nothing if nothing was appended or cut since the last call.
  absl::Status Sync();

 private:
  std::string path_;
  Fd fd_;
  uint64_t end_ = 0;
  bool unsynced_ = false;
};

}  // namespace macaw
