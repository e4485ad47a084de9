#include "proto/wire/partial_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "core/file_blocks.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/page_pool.h"
#include "core/shared_memory.h"
#include "core/status.h"

namespace macaw::wire {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostInAFrame = uint64_t{1} << 20;
constexpr uint64_t kMappedPiece = uint64_t{64} << 10;  // has a checksum once it is whole

struct FrameHead {
  uint64_t length = 0;
  uint64_t checksum = 0;  // of the bytes
};

uint64_t PiecesOf(uint64_t bytes) { return (bytes + kMappedPiece - 1) / kMappedPiece; }

// Whether the process may have files of this size; writing beyond raises a signal.
bool MayWrite(uint64_t bytes) {
  rlimit most{};
  return getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur >= bytes;
}

void Unmap(std::byte* data, size_t mapped, int) {
  ForgetFileBlock(data);
  munmap(data, mapped);
}

bool ReadAt(int fd, uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t n = pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to = to.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return true;
}

// Opens the file, or makes it, and locks it. Not open if another process has it.
Fd OpenLocked(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.open() || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return Fd();
  struct stat info {};
  // Between open and flock another process may have removed the file.
  if (fstat(fd.get(), &info) != 0 || info.st_nlink == 0) return Fd();
  return fd;
}

}  // namespace

// Lives as long as one of its files.
struct PartialFile::Folder {
  struct Kept {
    uint64_t bytes = 0;  // of the file, or of the whole blob while it is in use
    const PartialFile* user = nullptr;
    fs::file_time_type changed{};
  };

  explicit Folder(const PartialFiles::Options& o) : options(o) {}
  std::string Path(const std::string& name) const {
    return absl::StrCat(options.folder, "/", name);
  }
  void RemoveLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (closed) return;
    std::error_code ignored;
    fs::remove(Path(name), ignored);
    files.erase(name);
  }
  void List() ABSL_LOCKS_EXCLUDED(mutex);
  void RemoveOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  bool MakeRoom(const std::string& name, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const PartialFiles::Options options;
  absl::Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  std::map<std::string, Kept> files ABSL_GUARDED_BY(mutex);
};

void PartialFile::Folder::List() {
  absl::MutexLock lock(&mutex);
  std::error_code error;
  for (fs::directory_iterator it(options.folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const Kept kept{.bytes = it->file_size(gone), .changed = it->last_write_time(gone)};
    if (!gone) files[it->path().filename().string()] = kept;
  }
  RemoveOld();
}

void PartialFile::Folder::RemoveOld() {
  const auto oldest = fs::file_time_type::clock::now() - options.max_age;
  for (auto it = files.begin(); it != files.end();) {
    const auto here = it++;
    if (here->second.user == nullptr && here->second.changed < oldest) RemoveLocked(here->first);
  }
}

bool PartialFile::Folder::MakeRoom(const std::string& name, uint64_t bytes) {
  uint64_t in_use = 0, idle = 0;
  std::vector<std::pair<fs::file_time_type, std::string>> oldest;
  for (const auto& [other, kept] : files) {
    if (other == name) continue;
    (kept.user == nullptr ? idle : in_use) += kept.bytes;
    if (kept.user == nullptr) oldest.emplace_back(kept.changed, other);
  }
  if (in_use > options.budget_bytes || bytes > options.budget_bytes - in_use) return false;
  const uint64_t for_idle = options.budget_bytes - in_use - bytes;
  std::sort(oldest.begin(), oldest.end());
  for (const auto& [changed, other] : oldest) {
    if (idle <= for_idle) break;
    idle -= files[other].bytes;
    RemoveLocked(other);
  }
  return true;
}

PartialFile::PartialFile(std::shared_ptr<Folder> folder, std::string name, Fd fd)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      file_(folder_->Path(name_), std::move(fd)) {}

PartialFile::~PartialFile() {
  absl::MutexLock lock(&folder_->mutex);
  const auto it = folder_->files.find(name_);
  if (it == folder_->files.end() || it->second.user != this) return;
  it->second = {.bytes = file_.end(), .changed = fs::file_time_type::clock::now()};
}

AlignedBuffer PartialFile::Map(uint64_t bytes) {
  const uint64_t checked = PiecesOf(bytes) * sizeof(uint64_t);
  const uint64_t data = RoundUpToPage(bytes);
  if (!LiesInFiles(bytes) || !MayWrite(data + checked)) return {};
  const int fd = file_.fd().get();
  struct stat info {};
  const auto size = static_cast<off_t>(data + checked);
  if (fstat(fd, &info) != 0) return {};
  // Of another form, or of a blob of another size.
  if (info.st_size != size && ftruncate(fd, 0) != 0) return {};
  // All space, where a failure can be handled, and not when a page is written back.
  void* const place = fallocate(fd, 0, 0, size) != 0
                          ? MAP_FAILED
                          : mmap(nullptr, data, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (place == MAP_FAILED) {
    (void)!ftruncate(fd, 0);
    return {};
  }
  file_.EndAt(data + checked);
  if (Fd same(fcntl(fd, F_DUPFD_CLOEXEC, 0)); same.open())
    KnowFileBlock(static_cast<std::byte*>(place), data, std::move(same), Space::kTaken);
  AlignedBuffer blob = AlignedBuffer::Adopt(static_cast<std::byte*>(place), bytes, &Unmap, data,
                                            /*file=*/-1);
  mapped_ = std::as_const(blob).bytes();
  return blob;
}

uint64_t PartialFile::ReadMapped() const {
  std::vector<uint64_t> checksums(PiecesOf(mapped_.size()));
  if (!ReadAt(file_.fd().get(), RoundUpToPage(mapped_.size()),
              std::as_writable_bytes(std::span(checksums)))) {
    return 0;
  }
  uint64_t read = 0;
  for (const uint64_t checksum : checksums) {
    const auto piece = mapped_.subspan(read, std::min(kMappedPiece, mapped_.size() - read));
    if (checksum == 0 || Checksum(piece) != checksum) break;  // 0: it was not there
    read += piece.size();
  }
  return read;
}

absl::Status PartialFile::AppendMapped(uint64_t bytes) {
  const uint64_t first = there_ / kMappedPiece;  // the pieces before are whole
  there_ += bytes;
  std::vector<uint64_t> checksums;
  for (uint64_t begin = first * kMappedPiece; begin < there_; begin += kMappedPiece) {
    const uint64_t size = std::min(kMappedPiece, mapped_.size() - begin);
    if (begin + size <= there_) checksums.push_back(Checksum(mapped_.subspan(begin, size)));
  }
  const uint64_t at = RoundUpToPage(mapped_.size()) + first * sizeof(uint64_t);
  return WriteAllAt(file_.fd(), std::as_bytes(std::span(checksums)), at)
             ? absl::OkStatus()
             : FileError("cannot write to", file_.path());
}

uint64_t PartialFile::Read(std::span<std::byte> blob) {
  if (!mapped_.empty()) return there_ = ReadMapped();
  uint64_t read = 0;
  while (read < blob.size()) {
    FrameHead head;
    if (!ReadAt(file_.fd().get(), file_.end(), std::as_writable_bytes(std::span(&head, 1)))) break;
    if (head.length == 0 || head.length > std::min(kMostInAFrame, blob.size() - read)) break;
    const auto place = blob.subspan(read, head.length);
    if (!ReadAt(file_.fd().get(), file_.end() + sizeof(head), place) ||
        Checksum(place) != head.checksum) {
      break;
    }
    read += head.length;
    file_.EndAt(file_.end() + sizeof(head) + head.length);
  }
  if (!file_.CutTail().ok()) failed_ = true;
  return read;
}

void PartialFile::Append(std::span<const std::byte> bytes) {
  if (!mapped_.empty()) {
    if (!failed_) GiveUpUnless(AppendMapped(bytes.size()));
    return;
  }
  while (!bytes.empty() && !failed_) {
    const auto frame = bytes.first(std::min<size_t>(bytes.size(), kMostInAFrame));
    bytes = bytes.subspan(frame.size());
    GiveUpUnless(AppendFrame(frame));
  }
}

void PartialFile::GiveUpUnless(const absl::Status& status) {
  if (status.ok()) return;
  failed_ = true;
  Discard();
  Logger("wire").Warning(absl::StrCat("partial_file_lost why=\"", status.message(), "\""));
}

absl::Status PartialFile::AppendFrame(std::span<const std::byte> bytes) {
  const FrameHead head{.length = bytes.size(), .checksum = Checksum(bytes)};
  return file_.Append({std::as_bytes(std::span(&head, 1)), bytes});
}

void PartialFile::Discard() {
  absl::MutexLock lock(&folder_->mutex);
  const auto it = folder_->files.find(name_);
  if (it != folder_->files.end() && it->second.user == this) folder_->RemoveLocked(name_);
}

PartialFiles::PartialFiles(std::shared_ptr<PartialFile::Folder> folder)
    : folder_(std::move(folder)) {}

absl::StatusOr<std::unique_ptr<PartialFiles>> PartialFiles::Open(const Options& options) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(options.folder));
  if (chmod(options.folder.c_str(), 0700) != 0)
    return FileError("cannot set the permissions of", options.folder);
  auto folder = std::make_shared<PartialFile::Folder>(options);
  folder->List();
  return std::unique_ptr<PartialFiles>(new PartialFiles(std::move(folder)));
}

std::shared_ptr<PartialFile> PartialFiles::Take(const std::string& name, uint64_t blob_bytes) {
  absl::MutexLock lock(&folder_->mutex);
  folder_->RemoveOld();
  const auto found = folder_->files.find(name);
  if (folder_->closed || (found != folder_->files.end() && found->second.user != nullptr))
    return nullptr;
  if (!folder_->MakeRoom(name, blob_bytes)) return nullptr;
  Fd fd = OpenLocked(folder_->Path(name));
  if (!fd.open()) return nullptr;
  std::shared_ptr<PartialFile> file(new PartialFile(folder_, name, std::move(fd)));
  folder_->files[name] = {.bytes = blob_bytes, .user = file.get()};
  return file;
}

bool PartialFiles::InUse(const std::string& name) const {
  absl::MutexLock lock(&folder_->mutex);
  const auto found = folder_->files.find(name);
  return found != folder_->files.end() && found->second.user != nullptr;
}

void PartialFiles::Sweep(absl::FunctionRef<bool(const std::string& name)> wanted) {
  absl::MutexLock lock(&folder_->mutex);
  for (auto it = folder_->files.begin(); it != folder_->files.end();) {
    const auto here = it++;
    if (here->second.user == nullptr && !wanted(here->first)) folder_->RemoveLocked(here->first);
  }
}

void PartialFiles::Close() {
  absl::MutexLock lock(&folder_->mutex);
  folder_->closed = true;
}

}  // namespace macaw::wire
