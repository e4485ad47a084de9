#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw::data {

// A file of an archive that is written. The caller keeps the bytes.
struct ZipEntry {
  std::string name;  // UTF-8
  std::span<const std::byte> bytes;
};

// Writes a ZIP archive whose files are stored as they are, atomically. Its bytes depend on names,
// contents and their order alone: every file has the same time and mode. An archive has less than
// 4 GiB and fewer than 65,535 files; an error says which limit is reached.
absl::Status WriteStoredZip(const std::string& path, const std::vector<ZipEntry>& entries);

// Whether `bytes` are what WriteStoredZip writes for these files.
bool IsStoredZip(absl::string_view bytes, const std::vector<ZipEntry>& entries);

}  // namespace macaw::data
