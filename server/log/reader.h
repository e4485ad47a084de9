#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/fd.h"
#include "server/log/record.h"

// The file rounds.log (numbers little-endian):
//
//   "macawlog" | u32 version | u32 0 | u64 XXH3 of these 16 bytes
//   then per record
//   u32 bytes of the payload | u64 sequence number | u32 low half of the XXH3 of these 12 bytes
//   payload (codec.h)
//   u64 XXH3 of all the record's bytes before
//
// A record's head has its own checksum. So a damaged length is detected as damage, and is not taken
// for a record that ends behind the end of the file. A crash can leave the last record torn. A
// record is torn if the file ends inside it, or if all bytes from its last eight on are zero, which
// means that they were never written. Any other mismatch is damage.
namespace macaw::server::log {

inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kFileHead = 24, kRecordHead = 16, kRecordFoot = 8;

std::string FileHead();                               // the first bytes of every log file
void AppendFramed(const Entry& entry, std::string&);  // appends the record with its frame

// Reads a log, even while it is being written. Movable; one thread.
class Reader {
 public:
  // Returns an error if the file is not a log, or a log of another version. `synced`: all bytes
  // before this offset have been on the disk. Damage from there on is what a crash of the machine
  // left of writes that had not ended, so the log ends before it.
  static absl::StatusOr<Reader> Open(const std::string& path, uint64_t synced = UINT64_MAX);

  // Reads the next record. nullopt: the log ends here, or its last record is torn; a later call
  // tries again. An error names the sequence number and the place in the file, and says what the
  // user can do.
  absl::StatusOr<std::optional<Entry>> Next();

  uint64_t offset() const { return offset_; }      // of the end of the last record that was read
  uint64_t sequence() const { return sequence_; }  // of the last record that was read; 0: none yet
  // Size of the torn record behind offset(), in bytes. Call it after Next has returned nullopt.
  absl::StatusOr<uint64_t> TornBytes() const;

 private:
  explicit Reader(std::string path) : path_(std::move(path)) {}
  // Up to `bytes` bytes from offset_; fewer at the end of the file.
  absl::StatusOr<absl::string_view> Look(size_t bytes);
  // Whether the file holds only zeros from offset_ + `from` on.
  absl::StatusOr<bool> NeverWritten(size_t from);
  // Of a damaged record: an error, or the end of the log if the record may not have been synced.
  absl::StatusOr<std::optional<Entry>> Damage(absl::string_view what) const;

  std::string path_;
  Fd fd_;
  uint64_t synced_ = UINT64_MAX;
  uint64_t offset_ = 0;
  uint64_t sequence_ = 0;
  std::string buffer_;  // the file's bytes from buffer_at_
  uint64_t buffer_at_ = 0;
};

}  // namespace macaw::server::log
