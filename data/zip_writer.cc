#include "data/zip_writer.h"

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::data {
namespace {

// PKWARE APPNOTE 6.3, sections 4.3.7, 4.3.12 and 4.3.16.
constexpr uint16_t kStored = 0, kUtf8Names = 0x0800, kVersionNeeded = 10;
constexpr uint16_t kMadeOnUnix = 3 << 8 | 20;
constexpr uint16_t kNoTime = 0, kFirstDay = 1 << 5 | 1;  // 1980-01-01, the first that there is
constexpr uint32_t kPlainFile = 0100644U << 16;          // rw-r--r--
constexpr uint64_t kMostBytes = 0xfffffffeU;
constexpr size_t kMostEntries = 0xfffe, kMostName = 0xffff;

void Append16(std::string& out, uint16_t value) {
  out.push_back(static_cast<char>(value & 0xff));
  out.push_back(static_cast<char>(value >> 8));
}
void Append32(std::string& out, uint32_t value) {
  Append16(out, static_cast<uint16_t>(value & 0xffff));
  Append16(out, static_cast<uint16_t>(value >> 16));
}

// What the header before a file and its line in the directory have alike.
void AppendFacts(std::string& out, const ZipEntry& entry, uint32_t crc) {
  Append16(out, kVersionNeeded);
  Append16(out, kUtf8Names);
  Append16(out, kStored);
  Append16(out, kNoTime);
  Append16(out, kFirstDay);
  Append32(out, crc);
  Append32(out, static_cast<uint32_t>(entry.bytes.size()));  // packed
  Append32(out, static_cast<uint32_t>(entry.bytes.size()));  // unpacked
  Append16(out, static_cast<uint16_t>(entry.name.size()));
  Append16(out, 0);  // bytes of extra fields
}

// Gives the archive to `put`, piece by piece from the beginning. `name`: of the archive, for
// messages.
absl::Status MakeStoredZip(const std::string& name, const std::vector<ZipEntry>& entries,
                           const std::function<absl::Status(std::span<const std::byte>)>& put) {
  if (entries.size() > kMostEntries) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " would have ", entries.size(), " files; ", kMostEntries, " fit"));
  }
  std::string directory;
  uint64_t at = 0;
  for (const ZipEntry& entry : entries) {
    const auto crc = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(entry.bytes.data()), entry.bytes.size()));
    std::string header("PK\x03\x04", 4);
    AppendFacts(header, entry, crc);
    header += entry.name;
    directory.append("PK\x01\x02", 4);
    Append16(directory, kMadeOnUnix);
    AppendFacts(directory, entry, crc);
    Append16(directory, 0);  // bytes of a comment
    Append16(directory, 0);  // disk
    Append16(directory, 0);  // internal attributes
    Append32(directory, kPlainFile);
    Append32(directory, static_cast<uint32_t>(at));
    directory += entry.name;
    at += header.size() + entry.bytes.size();
    if (entry.name.size() > kMostName || at + directory.size() > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " would have 4 GiB or more, with ", entry.name));
    }
    MACAW_RETURN_IF_ERROR(put(BytesOf(absl::string_view(header))));
    MACAW_RETURN_IF_ERROR(put(entry.bytes));
  }
  const auto size = static_cast<uint32_t>(directory.size());
  directory.append("PK\x05\x06", 4);
  Append16(directory, 0);  // disk
  Append16(directory, 0);  // disk of the directory
  Append16(directory, static_cast<uint16_t>(entries.size()));
  Append16(directory, static_cast<uint16_t>(entries.size()));
  Append32(directory, size);
  Append32(directory, static_cast<uint32_t>(at));
  Append16(directory, 0);  // bytes of a comment
  return put(BytesOf(absl::string_view(directory)));
}

}  // namespace

absl::Status WriteStoredZip(const std::string& path, const std::vector<ZipEntry>& entries) {
  MACAW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  uint64_t at = 0;
  MACAW_RETURN_IF_ERROR(MakeStoredZip(path, entries, [&](std::span<const std::byte> piece) {
    const uint64_t here = at;
    at += piece.size();
    return file.WriteAt(here, piece);
  }));
  return std::move(file).Commit();
}

bool IsStoredZip(absl::string_view bytes, const std::vector<ZipEntry>& entries) {
  size_t at = 0;
  const absl::Status same = MakeStoredZip("", entries, [&](std::span<const std::byte> piece) {
    const bool equal =
        piece.size() <= bytes.size() - at &&
        (piece.empty() || std::memcmp(bytes.data() + at, piece.data(), piece.size()) == 0);
    at += equal ? piece.size() : 0;
    return equal ? absl::OkStatus() : absl::DataLossError("other bytes");
  });
  return same.ok() && at == bytes.size();
}

}  // namespace macaw::data
