#include "server/log/writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/files.h"
#include "core/status.h"
#include "server/log/reader.h"

namespace macaw::server::log {

absl::StatusOr<Writer> Writer::Open(const std::string& path, const Digest& run, KnownEnd known) {
  Writer writer;
  uint64_t size = 0, end = 0;
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(size, FileSize(path));
  }
  // A file that ends inside its head was created just before a crash.
  if (size >= kFileHead) {
    MACAW_ASSIGN_OR_RETURN(end, writer.ReadThrough(path, run, known));
  }
  writer.cut_bytes_ = size - end;
  MACAW_ASSIGN_OR_RETURN(writer.file_, RecordFile::Open(path, end));
  if (end == 0) {
    writer.collected_ = FileHead();
    MACAW_RETURN_IF_ERROR(writer.Write());
  }
  return writer;
}

absl::StatusOr<uint64_t> Writer::ReadThrough(const std::string& path, const Digest& run,
                                             KnownEnd known) {
  MACAW_ASSIGN_OR_RETURN(Reader reader, Reader::Open(path, known.synced));
  while (reader.offset() < known.cut) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<Entry> entry, reader.Next());
    if (!entry.has_value()) break;
    last_ns_ = entry->ns;
    const auto* opened = std::get_if<RunOpened>(&entry->record);
    if (opened == nullptr) continue;
    if (opened->run != run) {
      return absl::FailedPreconditionError(absl::StrCat(path, " is the log of another run (",
                                                        opened->run.Hex(), "; this one is ",
                                                        run.Hex(), "): move it away"));
    }
    if (first_wall_ns_ == 0) first_wall_ns_ = opened->wall_ns - entry->ns;
    replays_ = !opened->replays.IsZero();
  }
  sequence_ = reader.sequence();
  return reader.offset();
}

void Writer::Append(int64_t ns, Record record) {
  last_ns_ = std::max(ns, last_ns_);
  AppendFramed({.sequence = ++sequence_, .ns = last_ns_, .record = std::move(record)}, collected_);
}

absl::Status Writer::Write() {
  if (collected_.empty()) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(file_.Append({BytesOf(collected_)}));
  collected_.clear();
  return absl::OkStatus();
}

absl::Status Writer::Sync() {
  MACAW_RETURN_IF_ERROR(Write());
  return file_.Sync();
}

}  // namespace macaw::server::log
