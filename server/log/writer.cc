#include "server/log/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "core/files.h"
#include "core/status.h"
#include "server/log/reader.h"

namespace macaw::server::log {
absl::StatusOr<Writer> Writer::Open(const std::string& path, const Digest& run) {
  Writer writer(path);
  uint64_t size = 0;
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(size, FileSize(path));
  }
  // A file that ends inside its head was created just before a crash.
  if (size >= kFileHead) MACAW_RETURN_IF_ERROR(writer.ReadThrough(run));
  writer.cut_bytes_ = size - writer.offset_;
  writer.fd_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!writer.fd_.open()) return FileError("cannot open", path);
  if (::ftruncate(writer.fd_.get(), static_cast<off_t>(writer.offset_)) != 0)
    return FileError("cannot cut", path);
  if (::lseek(writer.fd_.get(), 0, SEEK_END) < 0) return FileError("cannot seek in", path);
  if (writer.offset_ == 0) {
    writer.collected_ = FileHead();
    MACAW_RETURN_IF_ERROR(writer.Write());
  }
  return writer;
}

absl::Status Writer::ReadThrough(const Digest& run) {
  MACAW_ASSIGN_OR_RETURN(Reader reader, Reader::Open(path_));
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Entry> entry, reader.Next());
    if (!entry.has_value()) break;
    last_ns_ = entry->ns;
    const auto* opened = std::get_if<RunOpened>(&entry->record);
    if (opened == nullptr) continue;
    if (opened->run != run) {
      return absl::FailedPreconditionError(absl::StrCat(path_, " is the log of another run (",
                                                        opened->run.Hex(), "; this one is ",
                                                        run.Hex(), "): move it away"));
    }
    if (first_wall_ns_ == 0) first_wall_ns_ = opened->wall_ns - entry->ns;
    replays_ = !opened->replays.IsZero();
  }
  offset_ = reader.offset();
  sequence_ = reader.sequence();
  return absl::OkStatus();
}

void Writer::Append(int64_t ns, Record record) {
  last_ns_ = std::max(ns, last_ns_);
  AppendFramed({.sequence = ++sequence_, .ns = last_ns_, .record = std::move(record)}, collected_);
}

absl::Status Writer::Write() {
  if (!WriteAll(fd_, BytesOf(collected_))) {
    const absl::Status status = FileError("cannot write", path_);
    // Remove the partly written record, so that the next one does not follow half a record. If this
    // fails too, the returned error is enough.
    if (::ftruncate(fd_.get(), static_cast<off_t>(offset_)) == 0) ::lseek(fd_.get(), 0, SEEK_END);
    return status;
  }
  offset_ += collected_.size();
  collected_.clear();
  return absl::OkStatus();
}

absl::Status Writer::Sync() {
  MACAW_RETURN_IF_ERROR(Write());
  if (::fdatasync(fd_.get()) != 0) return FileError("cannot sync", path_);
  return absl::OkStatus();
}

}  // namespace macaw::server::log
