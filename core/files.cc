#include "core/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "core/record_file.h"
#include "core/status.h"

namespace macaw {
namespace {

absl::Status WriteAll(const Fd& fd, std::span<const std::byte> bytes, const std::string& path) {
  return macaw::WriteAll(fd, bytes) ? absl::OkStatus() : FileError("cannot write", path);
}

constexpr char kPart[] = ".part";
constexpr size_t kSuffix = 16 + sizeof(kPart);     // of a temporary name, with the dot before it
constexpr auto kNotNew = std::chrono::minutes(1);  // of a file that may be without its lock

// A temporary name that no other writer of this file uses. The process id is not enough: two
// containers that share a folder may have processes with the same id.
std::string AsideOf(const std::string& path) {
  std::random_device random;
  const uint64_t suffix = static_cast<uint64_t>(random()) << 32 | random();
  return absl::StrCat(path, ".", absl::Hex(suffix, absl::kZeroPad16), kPart);
}

// Removes the temporary files of `path` whose writers are gone: nobody holds their locks. One that
// is new may get its lock in a moment.
void RemoveAbandoned(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string begin = absl::StrCat(whole.filename().string(), ".");
  std::error_code error;
  const std::string folder = whole.parent_path().string();
  for (std::filesystem::directory_iterator it(folder.empty() ? "." : folder, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.size() != begin.size() - 1 + kSuffix || !absl::StartsWith(name, begin) ||
        !absl::EndsWith(name, kPart))
      continue;
    const auto written = it->last_write_time(error);
    if (error || std::filesystem::file_time_type::clock::now() - written < kNotNew) continue;
    const Fd file(::open(it->path().c_str(), O_WRONLY | O_CLOEXEC));
    if (file.open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
  }
}

}  // namespace

absl::Status FileError(absl::string_view what, absl::string_view path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return FileError("cannot open", path);
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(file.get(), buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError("cannot read", path);
    }
    text.append(buffer, static_cast<size_t>(n));
  }
}

absl::StatusOr<uint64_t> FileSize(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return FileError("cannot look at", path);
  return static_cast<uint64_t>(info.st_size);
}

bool FileExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

absl::Status MissingFile(const std::string& path, absl::string_view missing) {
  if (::access(path.c_str(), F_OK) != 0 && errno != ENOENT && errno != ENOTDIR)
    return FileError("cannot open", path);
  return absl::NotFoundError(missing);
}

absl::Status SyncDirectory(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open()) return FileError("cannot open folder", path);
  if (::fsync(folder.get()) != 0) return FileError("cannot sync folder", path);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path) {
  // A new folder is an entry in its parent, so the parent is synced. Otherwise a file that is
  // synced later could be lost together with its folder.
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
       !folder.empty() && !std::filesystem::exists(folder, error); folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  std::filesystem::create_directories(path, error);
  if (error) return FileError("cannot create folder", path, error.value());
  for (const std::filesystem::path& folder : missing) {
    const std::string above = folder.parent_path().string();
    MACAW_RETURN_IF_ERROR(SyncDirectory(above.empty() ? "." : above));
  }
  return absl::OkStatus();
}

absl::Status AtomicWriteFile(const std::string& path, std::span<const std::byte> bytes) {
  const std::string aside = AsideOf(path);
  const auto write_aside = [&]() -> absl::Status {
    const Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file.open()) return FileError("cannot create", aside);
    MACAW_RETURN_IF_ERROR(WriteAll(file, bytes, aside));
    if (::fsync(file.get()) != 0) return FileError("cannot sync", aside);
    if (::rename(aside.c_str(), path.c_str()) != 0) return FileError("cannot rename into", path);
    return absl::OkStatus();
  };
  if (absl::Status status = write_aside(); !status.ok()) {
    ::unlink(aside.c_str());
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(folder.empty() ? "." : folder);
}

absl::Status AtomicWriteFile(const std::string& path, absl::string_view text) {
  return AtomicWriteFile(path, BytesOf(text));
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  AtomicFile file;
  RemoveAbandoned(path);
  file.path_ = path;
  file.aside_ = AsideOf(path);
  file.fd_ = Fd(::open(file.aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.fd_.open()) return FileError("cannot create", file.aside_);
  ::flock(file.fd_.get(), LOCK_EX | LOCK_NB);  // says that somebody writes it
  return file;
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(aside_, other.aside_);
  std::swap(fd_, other.fd_);
  return *this;
}

AtomicFile::~AtomicFile() {
  if (fd_.open()) ::unlink(aside_.c_str());
}

absl::Status AtomicFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  return WriteAllAt(fd_, bytes, offset) ? absl::OkStatus() : FileError("cannot write", aside_);
}

absl::Status AtomicFile::Commit() && {
  if (::fsync(fd_.get()) != 0) return FileError("cannot sync", aside_);
  if (::rename(aside_.c_str(), path_.c_str()) != 0) return FileError("cannot rename into", path_);
  fd_.Close();
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  return SyncDirectory(folder.empty() ? "." : folder);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return FileError("cannot open", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return FileError("cannot look at", path);
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  MappedFile mapped;
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return mapped;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return FileError("cannot map", path);
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void Advise(std::span<const std::byte> mapped, Access access) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto past_page = reinterpret_cast<uintptr_t>(mapped.data()) % page;
  ::madvise(const_cast<std::byte*>(mapped.data()) - past_page, mapped.size() + past_page,
            access == Access::kScattered ? MADV_RANDOM : MADV_NORMAL);
}

absl::StatusOr<LineFile> LineFile::Open(const std::string& path, uint64_t keep_bytes, Tail tail) {
  LineFile file;
  file.path_ = path;
  file.fd_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!file.fd_.open()) return FileError("cannot open", path);
  MACAW_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  if (size < keep_bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", size,
                                            " bytes, but the checkpoint was written after ",
                                            keep_bytes, "; it was cut or replaced"));
  }
  file.offset_ = keep_bytes;
  if (tail == Tail::kCut) MACAW_RETURN_IF_ERROR(file.CutTail());
  return file;
}

absl::Status LineFile::Append(absl::string_view line) {
  MACAW_RETURN_IF_ERROR(AppendRecord(fd_, offset_, {BytesOf(line), BytesOf("\n")}, path_));
  offset_ += line.size() + 1;
  return absl::OkStatus();
}

absl::Status LineFile::CutTail() {
  if (::ftruncate(fd_.get(), static_cast<off_t>(offset_)) != 0)
    return FileError("cannot cut", path_);
  return absl::OkStatus();
}

absl::Status LineFile::Sync() {
  if (::fsync(fd_.get()) != 0) return FileError("cannot sync", path_);
  return absl::OkStatus();
}

}  // namespace macaw
