#include "identity/chained_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::identity {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

std::string LineOf(const LogEntry& entry, const Digest& before) {
  Json line;
  line["n"] = entry.number;
  line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", entry.time, absl::UTCTimeZone());
  line["what"] = entry.what;
  line["details"] = Json::object();
  for (const auto& [key, value] : entry.details) line["details"][key] = value;
  line["before"] = before.Hex();
  // Bytes that are no UTF-8 come from outside: they are replaced, not refused.
  return line.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<ChainedLog> ChainedLog::Open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.open()) return Failed("open", path);
  return ChainedLog(path, std::move(fd));
}

absl::StatusOr<LogEntry> ChainedLog::Parse(absl::string_view line) const {
  const auto broken = [this](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(path_, ", line ", lines_ + 1, ": ", why));
  };
  try {
    const Json json = Json::parse(line);
    LogEntry entry;
    entry.number = json.at("n").get<uint64_t>();
    entry.what = json.at("what").get<std::string>();
    for (const auto& [key, value] : json.at("details").items())
      entry.details[key] = value.get<std::string>();
    std::string error;
    if (!absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", json.at("time").get<std::string>(), &entry.time,
                         &error)) {
      return broken(absl::StrCat("its time cannot be read: ", error));
    }
    if (entry.number != lines_ + 1 || json.at("before").get<std::string>() != head_.Hex())
      return broken("does not follow from the line before it: the file was changed");
    return entry;
  } catch (const Json::exception& error) {
    return broken(error.what());
  }
}

absl::Status ChainedLog::ReadOn(Visit visit) {
  struct stat info {};
  if (::fstat(file_.fd().get(), &info) != 0) return Failed("look at", path_);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == offset_) return absl::OkStatus();
  if (size < offset_) return absl::DataLossError(absl::StrCat(path_, " has become shorter"));
  std::string text(size - offset_, '\0');
  const ssize_t read =
      ::pread(file_.fd().get(), text.data(), text.size(), static_cast<off_t>(offset_));
  if (read < 0) return Failed("read", path_);
  text.resize(static_cast<size_t>(read));
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const absl::string_view line = absl::string_view(text).substr(begin, end - begin);
    MACAW_ASSIGN_OR_RETURN(LogEntry entry, Parse(line));
    entry.line = DigestOf(line);
    MACAW_RETURN_IF_ERROR(visit(entry));
    offset_ += line.size() + 1;
    ++lines_;
    head_ = entry.line;
    begin = end + 1;
  }
  return absl::OkStatus();
}

bool ChainedLog::WasReplaced() const {
  struct stat named {
  }, open{};
  // Without a file of this name, the one that is open is all there is.
  if (::stat(path_.c_str(), &named) != 0 || ::fstat(file_.fd().get(), &open) != 0) return false;
  return named.st_ino != open.st_ino || named.st_dev != open.st_dev;
}

uint64_t ChainedLog::Size() const {
  struct stat info {};
  return ::fstat(file_.fd().get(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : offset_;
}

bool ChainedLog::EndsWithALine() const {
  char last = 0;
  const uint64_t size = Size();
  return size > 0 && ::pread(file_.fd().get(), &last, 1, static_cast<off_t>(size - 1)) == 1 &&
         last == '\n';
}

absl::Status ChainedLog::Rename(const std::string& path) {
  if (::rename(path_.c_str(), path.c_str()) != 0) return Failed("rename", path_);
  path_ = path;
  return absl::OkStatus();
}

absl::Status ChainedLog::Lock() {
  return ::flock(file_.fd().get(), LOCK_EX) == 0 ? absl::OkStatus() : Failed("lock", path_);
}

void ChainedLog::Unlock() { ::flock(file_.fd().get(), LOCK_UN); }

absl::Status ChainedLog::Append(Visit visit, absl::FunctionRef<absl::StatusOr<LogEntry>()> make,
                                absl::FunctionRef<void()> then) {
  MACAW_RETURN_IF_ERROR(Lock());
  const absl::Cleanup unlock = [this] { Unlock(); };
  return AppendLocked(visit, make, then);
}

absl::Status ChainedLog::AppendLocked(Visit visit,
                                      absl::FunctionRef<absl::StatusOr<LogEntry>()> make,
                                      absl::FunctionRef<void()> then) {
  MACAW_RETURN_IF_ERROR(ReadOn(visit));
  MACAW_ASSIGN_OR_RETURN(LogEntry entry, make());
  entry.number = lines_ + 1;
  const std::string line = absl::StrCat(LineOf(entry, head_), "\n");
  file_.EndAt(offset_);  // other processes add lines, too
  absl::Status written = file_.CutTail();
  if (written.ok()) written = file_.Append({BytesOf(line)});
  if (written.ok()) written = file_.Sync();
  if (!written.ok()) return absl::FailedPreconditionError(written.message());
  MACAW_RETURN_IF_ERROR(ReadOn(visit));
  then();
  return absl::OkStatus();
}

}  // namespace macaw::identity
