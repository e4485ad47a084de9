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
// A record's head has a checksum of its own, so that a damaged length is damage, and not a record
// that seems to end behind the file. A record is torn, as a crash leaves the last one, when the
// file ends inside it, or when nothing but zeros stands from its last eight bytes on: they were
// never written. Anything else that does not fit is damage.
namespace macaw::server::log {

inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kFileHead = 24, kRecordHead = 16, kRecordFoot = 8;

std::string FileHead();                               // of a new file
void AppendFramed(const Entry& entry, std::string&);  // a whole record

// Reads a log, also one that is being written. Movable; one thread.
class Reader {
 public:
  // Refuses what is no log, and one of another version.
  static absl::StatusOr<Reader> Open(const std::string& path);

  // The next record. Nothing: here the file ends, or its last record is torn; a later call looks
  // again. An error names the sequence number, the place in the file and what can be done.
  absl::StatusOr<std::optional<Entry>> Next();

  uint64_t offset() const { return offset_; }      // behind the last record that was read
  uint64_t sequence() const { return sequence_; }  // its number; 0: none yet
  // Bytes behind offset(), once Next has found nothing: of a torn record.
  absl::StatusOr<uint64_t> TornBytes() const;

 private:
  explicit Reader(std::string path) : path_(std::move(path)) {}
  absl::StatusOr<absl::string_view> Look(size_t bytes);  // from offset_; fewer at the file's end
  // Whether the file holds only zeros from this byte behind offset_ on.
  absl::StatusOr<bool> NeverWritten(size_t from);
  absl::Status Damage(absl::string_view what) const;

  std::string path_;
  Fd fd_;
  uint64_t offset_ = 0;
  uint64_t sequence_ = 0;
  std::string buffer_;  // the file's bytes from buffer_at_
  uint64_t buffer_at_ = 0;
};

}  // namespace macaw::server::log
