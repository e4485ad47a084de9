#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

namespace macaw::testing_support {

// What a folder takes on disk, in bytes: its files, and those without a name that this process has
// open or mapped. A file counts once.
inline uint64_t BytesOnDisk(const std::string& folder) {
  namespace fs = std::filesystem;
  std::map<std::pair<dev_t, ino_t>, uint64_t> files;
  const auto add = [&](const std::string& path) {
    struct stat told {};
    if (::stat(path.c_str(), &told) == 0 && S_ISREG(told.st_mode))
      files[{told.st_dev, told.st_ino}] = 512 * static_cast<uint64_t>(told.st_blocks);
  };
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    add(it->path());
  }
  const std::string below = fs::canonical(folder, error).string() + "/";
  // Only root may follow the second kind of links.
  for (const char* const links : {"/proc/self/fd", "/proc/self/map_files"}) {
    for (fs::directory_iterator it(links, error), end; !error && it != end; it.increment(error)) {
      std::error_code gone;
      const std::string target = fs::read_symlink(it->path(), gone).string();
      if (target.starts_with(below) && target.ends_with(" (deleted)")) add(it->path());
    }
  }
  uint64_t bytes = 0;
  for (const auto& [file, size] : files) bytes += size;
  return bytes;
}

}  // namespace macaw::testing_support
