#include "server/journal/frame_file.h"

#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "core/files.h"

namespace macaw::server {
namespace {

constexpr uint64_t kFrameHead = 16, kFrameFoot = 8;

uint64_t ChecksumOf(absl::string_view head, std::span<const std::byte> blob) {
  const uint64_t sums[] = {Checksum(BytesOf(head)), Checksum(blob)};
  return Checksum(std::as_bytes(std::span(sums)));
}

}  // namespace

absl::Status WriteFrame(RecordFile& file, absl::string_view head, std::span<const std::byte> blob) {
  ByteWriter sizes, foot;
  sizes.PutNumber(head.size());
  sizes.PutNumber(blob.size());
  foot.PutNumber(ChecksumOf(head, blob));
  const std::string first = std::move(sizes).Take(), last = std::move(foot).Take();
  return file.Append({BytesOf(first), BytesOf(head), blob, BytesOf(last)});
}

absl::StatusOr<uint64_t> ForEachFrame(
    const std::string& path,
    absl::FunctionRef<absl::Status(absl::string_view head, uint64_t at, uint64_t size)> use) {
  if (!FileExists(path)) return 0;
  MACAW_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  if (size == 0) return 0;
  MACAW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  const auto text = [&](uint64_t at, uint64_t count) {
    return absl::string_view(reinterpret_cast<const char*>(bytes.data()) + at, count);
  };
  uint64_t at = 0;
  while (bytes.size() - at >= kFrameHead + kFrameFoot) {
    ByteReader sizes(text(at, kFrameHead));
    const uint64_t head = sizes.Number(), blob = sizes.Number();
    const uint64_t room = bytes.size() - at - kFrameHead - kFrameFoot;
    if (head > room || blob > room - head) break;
    const uint64_t head_at = at + kFrameHead, blob_at = head_at + head, foot_at = blob_at + blob;
    if (ByteReader(text(foot_at, kFrameFoot)).Number() !=
        ChecksumOf(text(head_at, head), bytes.subspan(blob_at, blob))) {
      break;
    }
    const absl::Status used = use(text(head_at, head), blob_at, blob);
    if (!used.ok()) {
      return absl::Status(used.code(), absl::StrCat(path, ", at byte ", at, ": ", used.message()));
    }
    at = foot_at + kFrameFoot;
  }
  return at;
}

}  // namespace macaw::server
