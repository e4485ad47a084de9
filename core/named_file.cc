#include "core/named_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <span>
#include <system_error>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/fd.h"
#include "core/files.h"
#include "core/scratch_folder.h"
#include "core/status.h"

namespace macaw {
namespace {

bool IsSame(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// What gets bytes in the place of a file: standard output or error, by whatever name, a device or a
// pipe. Not open: there is a file, a folder or nothing.
absl::StatusOr<Fd> OpenStream(const std::string& path) {
  if (path.empty())
    return absl::InvalidArgumentError("the file to write has an empty name: give it a name");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return Fd();
    return FileError("cannot look at", path);
  }
  for (const int own : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat of_own {};
    if (::fstat(own, &of_own) != 0 || !IsSame(info, of_own)) continue;
    Fd stream(::fcntl(own, F_DUPFD_CLOEXEC, 0));  // its position is shared
    if (!stream.open()) return FileError("cannot open", path);
    return stream;
  }
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return Fd();
  Fd stream(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!stream.open()) return FileError("cannot open", path);
  return stream;
}

// Where the links at the path end, also if there is no file yet.
std::string BehindLinks(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  while (std::filesystem::is_symlink(at, error)) {  // ends: stat has followed them
    const std::filesystem::path next = std::filesystem::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / next;
  }
  return at.string();
}

absl::Status WriteThrough(const Fd& stream, std::span<const std::byte> bytes,
                          const std::string& path) {
  std::cout.flush();
  return WriteAll(stream, bytes) ? absl::OkStatus() : FileError("cannot write", path);
}

}  // namespace

absl::Status WriteNamedFile(const std::string& path, absl::string_view text) {
  MACAW_ASSIGN_OR_RETURN(const Fd stream, OpenStream(path));
  if (stream.open()) return WriteThrough(stream, BytesOf(text), path);
  return AtomicWriteFile(BehindLinks(path), text);
}

absl::Status WriteNamedFile(const std::string& path,
                            const std::function<absl::Status(const std::string& path)>& write) {
  MACAW_ASSIGN_OR_RETURN(const Fd stream, OpenStream(path));
  if (!stream.open()) return write(BehindLinks(path));
  MACAW_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Make("macaw-out"));
  const std::string whole = scratch / "whole";
  MACAW_RETURN_IF_ERROR(write(whole));
  MACAW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(whole));
  return WriteThrough(stream, file.bytes(), path);
}

}  // namespace macaw
