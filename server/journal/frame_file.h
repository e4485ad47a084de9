#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/record_file.h"
#include "core/status.h"
#include "server/journal/bytes.h"
#include "server/journal/format.h"

// Files of values of one type, each with the bytes of a blob. A file is a sequence of frames: u64
// size of the head in bytes, u64 size of the blob in bytes, head, blob, u64 checksum of both. A
// head is a number and then a format, or a value in the format before it. A crash can leave the
// last frame torn; a torn frame and all bytes after it are ignored. Only the run's owner may read
// such a file.
namespace macaw::server {

inline constexpr mode_t kOwnerOnly = 0600;

// What a head is. No file of a release before 0.1.0 begins with such a number.
inline constexpr uint64_t kFormatHead = 0, kValueHead = 1;

absl::Status WriteFrame(RecordFile& file, absl::string_view head, std::span<const std::byte> blob);

// Calls use(head, offset of the blob, size of the blob) for each whole frame of the file, until it
// returns an error. Returns the offset at which the frames end; 0 if there is no file.
absl::StatusOr<uint64_t> ForEachFrame(
    const std::string& path,
    absl::FunctionRef<absl::Status(absl::string_view head, uint64_t at, uint64_t size)> use);

// Reads the heads of a file, in their order.
template <typename T>
class HeadReader {
 public:
  // Nothing if the head is a format.
  absl::StatusOr<std::optional<T>> Read(absl::string_view head) {
    ByteReader in(head);
    const uint64_t kind = in.Number();
    if (kind == kFormatHead) {
      std::string text;
      in.Get(text);
      if (in.at_end()) written_ = ParseFormat(text);
      if (in.at_end() && written_.has_value()) return std::nullopt;
    } else if (kind == kValueHead && written_.has_value()) {
      T value;
      if (ReadsOwn()) {
        in.Get(value);
      } else {
        in.Get(value, *written_);
      }
      if (in.at_end()) return value;
    }
    return absl::DataLossError(
        "another release has written it in a format that this one cannot read");
  }
  // Whether this program's own values may follow.
  bool ReadsOwn() const {
    static const Format own = FormatOf<T>();
    return written_ == own;
  }

 private:
  std::optional<Format> written_;
};

struct FramesEnd {
  uint64_t at = 0;
  bool own_format = false;  // values of this program may follow
};

// Calls use(value, offset of its blob, size of the blob) for each whole value of the file, until it
// returns an error.
template <typename T, typename Use>
absl::StatusOr<FramesEnd> ForEachValue(const std::string& path, const Use& use) {
  HeadReader<T> reader;
  MACAW_ASSIGN_OR_RETURN(
      const uint64_t end,
      ForEachFrame(path, [&](absl::string_view head, uint64_t at, uint64_t size) -> absl::Status {
        MACAW_ASSIGN_OR_RETURN(std::optional<T> value, reader.Read(head));
        return value.has_value() ? use(*std::move(value), at, size) : absl::OkStatus();
      }));
  return FramesEnd{end, end > 0 && reader.ReadsOwn()};
}

// Appends to such a file. Movable; one thread.
template <typename T>
class FrameFile {
 public:
  FrameFile() = default;  // no file
  // Opens the file, or creates it, and cuts it to its whole frames, which end there.
  static absl::StatusOr<FrameFile> Open(const std::string& path, const FramesEnd& end) {
    FrameFile frames;
    MACAW_ASSIGN_OR_RETURN(frames.file_, RecordFile::Open(path, end.at, kOwnerOnly));
    if (end.own_format) return frames;
    ByteWriter head;
    head.PutNumber(kFormatHead);
    head.Put(TextOf(FormatOf<T>()));
    MACAW_RETURN_IF_ERROR(WriteFrame(frames.file_, std::move(head).Take(), {}));
    return frames;
  }

  bool open() const { return file_.fd().open(); }
  absl::Status Add(const T& value, std::span<const std::byte> blob) {
    ByteWriter head;
    head.PutNumber(kValueHead);
    head.Put(value);
    return WriteFrame(file_, std::move(head).Take(), blob);
  }
  absl::Status Sync() { return file_.Sync(); }

 private:
  RecordFile file_;
};

}  // namespace macaw::server
