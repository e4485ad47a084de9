#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::data {

// One file of an archive. Sizes and places are as the archive says; Unpack checks them.
struct ZipMember {
  std::string name;
  uint16_t method = 0;  // 0: stored, 8: deflated
  uint16_t flags = 0;
  uint32_t crc = 0;
  uint64_t packed = 0;
  uint64_t unpacked = 0;
  uint64_t header_at = 0;
};

// A ZIP archive in memory (PKWARE APPNOTE 6.3, with the 64-bit extension): its list of members, and
// what they hold. Immutable, thread-safe. Errors name the archive and the member.
class ZipArchive {
 public:
  // `path` is for messages.
  static absl::StatusOr<ZipArchive> Parse(std::string bytes, std::string path);

  const std::vector<ZipMember>& members() const { return members_; }
  const std::string& path() const { return path_; }

  // The member's bytes, checked against its checksum. Allocates no more than the member's size in
  // the archive can unpack to, and 16 GiB at most.
  absl::StatusOr<std::string> Unpack(const ZipMember& member) const;

 private:
  ZipArchive() = default;
  absl::StatusOr<absl::string_view> PackedBytes(const ZipMember& member) const;

  std::string bytes_, path_;
  std::vector<ZipMember> members_;
};

}  // namespace macaw::data
