#pragma once

#include <cstdint>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/digest.h"
#include "core/record_file.h"

namespace macaw::identity {

struct LogEntry {
  uint64_t number = 0;  // 1, 2, 3, …; given by Append
  absl::Time time;      // whole seconds are kept
  std::string what;
  absl::btree_map<std::string, std::string> details;
  Digest line = {};  // of the whole line, of an entry that was read
};

// A file of JSON lines to which lines are only ever added. Each line holds the digest of the line
// before it, so a line that is changed, taken out or put in breaks the chain. Several processes may
// share the file. A line that a crash left incomplete was never acknowledged and is cut off. One
// thread.
class ChainedLog {
 public:
  using Visit = absl::FunctionRef<absl::Status(const LogEntry&)>;

  // Opens the file, or creates it for this user alone.
  static absl::StatusOr<ChainedLog> Open(const std::string& path);

  // Hands over each line that was added since the last call, by whichever process. kDataLoss names
  // the first line that breaks the chain.
  absl::Status ReadOn(Visit visit);
  // Locks out other processes, reads on, and adds what `make` returns, durably. An error of `make`
  // is returned and nothing is added. The new line is handed to `visit`, too.
  absl::Status Append(Visit visit, absl::FunctionRef<absl::StatusOr<LogEntry>()> make) {
    return Append(visit, make, [] {});
  }
  // The same, and calls `then` with the line in the file, before other processes may add more.
  absl::Status Append(Visit visit, absl::FunctionRef<absl::StatusOr<LogEntry>()> make,
                      absl::FunctionRef<void()> then);

  // The same for a caller that holds Lock().
  absl::Status AppendLocked(Visit visit, absl::FunctionRef<absl::StatusOr<LogEntry>()> make,
                            absl::FunctionRef<void()> then);
  // Locks out other processes. Unlock, or the end of the object, lets them in again.
  absl::Status Lock();
  void Unlock();

  // Whether the path names another file now: it was put back from a copy, or a new one was begun.
  // What was read no longer holds; open it again.
  bool WasReplaced() const;
  // Whether the file is shorter than what was read: something else is being written into it.
  bool WasShortened() const { return Size() < offset_; }
  // Of the file that is open, in bytes.
  uint64_t Size() const;
  // Whether there are lines in the file, and the last one is complete.
  bool EndsWithALine() const;
  // Gives the file this name, whoever had it.
  absl::Status Rename(const std::string& path);

  uint64_t lines() const { return lines_; }
  uint64_t bytes() const { return offset_; }
  // The digest of the last line read. Whoever keeps it elsewhere can tell that lines were cut off
  // the end.
  const Digest& head() const { return head_; }

 private:
  ChainedLog(std::string path, Fd fd) : path_(path), file_(std::move(path), std::move(fd)) {}
  absl::StatusOr<LogEntry> Parse(absl::string_view line) const;

  std::string path_;
  RecordFile file_;
  uint64_t offset_ = 0;  // behind the last line read
  uint64_t lines_ = 0;
  Digest head_;
};

}  // namespace macaw::identity
