#include "data/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "data/text.h"

namespace macaw::data {
namespace {

constexpr absl::string_view kLocal("PK\x03\x04", 4), kCentral("PK\x01\x02", 4),
    kEnd("PK\x05\x06", 4), kEnd64("PK\x06\x06", 4), kLocator64("PK\x06\x07", 4);
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                 kLocator64Bytes = 20;
constexpr uint64_t kMostOfMember = uint64_t{16} << 30;
constexpr uint64_t kMostRatio = 1032;  // of deflate: 258 bytes from two bits

template <typename T>
T LittleEndian(absl::string_view bytes, size_t at) {
  T value;  // the format and the machine are little-endian
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The `size` bytes at `at`, if they exist.
std::optional<absl::string_view> PartOf(absl::string_view bytes, uint64_t at, uint64_t size) {
  if (at > bytes.size() || size > bytes.size() - at) return std::nullopt;
  return bytes.substr(at, size);
}

struct ZipDirectory {
  uint64_t at = 0, entries = 0;
};

// The end record stands behind everything but a comment of up to 65535 bytes.
std::optional<ZipDirectory> FindDirectory(absl::string_view bytes) {
  if (bytes.size() < kEndBytes) return std::nullopt;
  const size_t first = bytes.size() - std::min<size_t>(bytes.size(), kEndBytes + 65535);
  const size_t found = bytes.rfind(kEnd);
  if (found == absl::string_view::npos || found < first) return std::nullopt;
  const auto end = PartOf(bytes, found, kEndBytes);
  if (!end.has_value()) return std::nullopt;
  ZipDirectory directory{.at = LittleEndian<uint32_t>(*end, 16),
                         .entries = LittleEndian<uint16_t>(*end, 10)};
  if (found < kLocator64Bytes) return directory;
  const absl::string_view locator = bytes.substr(found - kLocator64Bytes, kLocator64Bytes);
  if (!absl::StartsWith(locator, kLocator64)) return directory;
  const auto end64 = PartOf(bytes, LittleEndian<uint64_t>(locator, 8), kEnd64Bytes);
  if (!end64.has_value() || !absl::StartsWith(*end64, kEnd64)) return std::nullopt;
  return ZipDirectory{.at = LittleEndian<uint64_t>(*end64, 48),
                      .entries = LittleEndian<uint64_t>(*end64, 32)};
}

// Reads the 64-bit sizes that an entry's extra field has for those that do not fit into 32 bits.
bool ReadWideSizes(absl::string_view extra, ZipMember& member) {
  uint64_t* const wide[] = {&member.unpacked, &member.packed, &member.header_at};
  while (extra.size() >= 4) {
    const auto id = LittleEndian<uint16_t>(extra, 0), size = LittleEndian<uint16_t>(extra, 2);
    const auto field = PartOf(extra, 4, size);
    if (!field.has_value()) return false;
    extra.remove_prefix(4 + size_t{size});
    if (id != 1) continue;
    size_t at = 0;
    for (uint64_t* const number : wide) {
      if (*number != UINT32_MAX) continue;
      if (at + 8 > field->size()) return false;
      *number = LittleEndian<uint64_t>(*field, at);
      at += 8;
    }
    return true;
  }
  return true;
}

// Unpacks raw deflate data of a known size. False: damaged.
bool InflateRaw(absl::string_view packed, std::string& out) {
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) return false;
  constexpr size_t kStep = size_t{1} << 30;
  size_t fed = 0, made = 0;
  int result = Z_OK;
  char none = 0;  // zlib wants an address even for no bytes
  while (result == Z_OK) {
    const size_t in = std::min(kStep, packed.size() - fed),
                 room = std::min(kStep, out.size() - made);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + fed));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(room == 0 ? &none : out.data() + made);
    stream.avail_out = static_cast<uInt>(room);
    result = inflate(&stream, Z_NO_FLUSH);
    const size_t taken = in - stream.avail_in, given = room - stream.avail_out;
    fed += taken;
    made += given;
    if (result == Z_OK && taken == 0 && given == 0) break;
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && fed == packed.size() && made == out.size();
}

uint32_t CrcOf(absl::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

absl::StatusOr<ZipArchive> ZipArchive::Parse(std::string bytes, std::string path) {
  ZipArchive archive;
  archive.bytes_ = std::move(bytes);
  archive.path_ = std::move(path);
  const absl::string_view all = archive.bytes_;
  const std::optional<ZipDirectory> directory = FindDirectory(all);
  if (!directory.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(archive.path_, " is cut short or no ZIP archive: it has no directory"));
  }
  uint64_t at = directory->at;
  for (uint64_t i = 0; i < directory->entries; ++i) {
    const auto damaged = [&] {
      return absl::InvalidArgumentError(
          absl::StrCat(archive.path_, ": entry ", i, " of its directory is damaged"));
    };
    const auto entry = PartOf(all, at, kCentralBytes);
    if (!entry.has_value() || !absl::StartsWith(*entry, kCentral)) return damaged();
    const auto name_size = LittleEndian<uint16_t>(*entry, 28),
               extra_size = LittleEndian<uint16_t>(*entry, 30),
               comment_size = LittleEndian<uint16_t>(*entry, 32);
    const auto name = PartOf(all, at + kCentralBytes, name_size);
    const auto extra = PartOf(all, at + kCentralBytes + name_size, extra_size);
    if (!name.has_value() || !extra.has_value()) return damaged();
    ZipMember member{.name = std::string(*name),
                     .method = LittleEndian<uint16_t>(*entry, 10),
                     .flags = LittleEndian<uint16_t>(*entry, 8),
                     .crc = LittleEndian<uint32_t>(*entry, 16),
                     .packed = LittleEndian<uint32_t>(*entry, 20),
                     .unpacked = LittleEndian<uint32_t>(*entry, 24),
                     .header_at = LittleEndian<uint32_t>(*entry, 42)};
    if (!ReadWideSizes(*extra, member)) return damaged();
    archive.members_.push_back(std::move(member));
    at += kCentralBytes + name_size + extra_size + comment_size;
  }
  return archive;
}

absl::StatusOr<absl::string_view> ZipArchive::PackedBytes(const ZipMember& member) const {
  const auto local = PartOf(bytes_, member.header_at, kLocalBytes);
  if (local.has_value() && absl::StartsWith(*local, kLocal)) {
    const uint64_t names =
        uint64_t{LittleEndian<uint16_t>(*local, 26)} + LittleEndian<uint16_t>(*local, 28);
    const auto packed = PartOf(bytes_, member.header_at + kLocalBytes + names, member.packed);
    if (packed.has_value()) return *packed;
  }
  return absl::InvalidArgumentError(absl::StrCat(path_, ": member ", Quoted(member.name),
                                                 " is not where the directory says, or cut short"));
}

absl::StatusOr<std::string> ZipArchive::Unpack(const ZipMember& member) const {
  const auto refuse = [&](auto&&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": member ", Quoted(member.name), " ", why...));
  };
  if ((member.flags & 1U) != 0) return refuse("is encrypted");
  if (member.method != 0 && member.method != 8)
    return refuse("is packed by method ", member.method, "; 0 (stored) and 8 (deflate) are read");
  MACAW_ASSIGN_OR_RETURN(const absl::string_view packed, PackedBytes(member));
  const uint64_t most = member.method == 0 ? packed.size() : kMostRatio * uint64_t{packed.size()};
  if (member.unpacked > most || (member.method == 0 && member.unpacked != packed.size())) {
    return refuse("is damaged: ", member.packed, " bytes do not unpack to ", member.unpacked);
  }
  if (member.unpacked > kMostOfMember) return refuse("unpacks to more than 16 GiB");
  std::string out;
  if (member.method == 0) {
    out.assign(packed.data(), packed.size());
  } else {
    out.resize(member.unpacked);
    if (!InflateRaw(packed, out)) return refuse("is damaged: bad deflate data");
  }
  if (CrcOf(out) != member.crc) return refuse("is damaged: its checksum does not match");
  return out;
}

}  // namespace macaw::data
