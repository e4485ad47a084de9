#include "server/log/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/digest.h"
#include "core/files.h"
#include "core/status.h"
#include "server/log/codec.h"

namespace macaw::server::log {
namespace {

constexpr absl::string_view kMagic = "macawlog";
constexpr size_t kReadAtOnce = 1 << 18;

template <typename T>
void PutNumber(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

template <typename T>
T NumberAt(absl::string_view bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(T{static_cast<unsigned char>(bytes[at + i])} << (8 * i));
  return value;
}

uint32_t ShortChecksum(absl::string_view bytes) {
  return static_cast<uint32_t>(Checksum(BytesOf(bytes)));
}

absl::Status CheckFileHead(absl::string_view head, const std::string& path) {
  if (head.size() < kFileHead || head.substr(0, kMagic.size()) != kMagic)
    return absl::DataLossError(absl::StrCat(path, " is not a log of rounds"));
  const auto version = NumberAt<uint32_t>(head, 8);
  if (NumberAt<uint64_t>(head, 16) != Checksum(BytesOf(head.substr(0, 16)))) {
    return absl::DataLossError(absl::StrCat(path, ": its first ", kFileHead,
                                            " bytes are damaged; restore the file from a copy"));
  }
  if (version == kVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " has version ", version, " of the log's format, and this program reads ",
                   kVersion, ": use the Macaw that wrote it, or a later one"));
}

}  // namespace

std::string FileHead() {
  std::string head(kMagic);
  PutNumber(kVersion, head);
  PutNumber(uint32_t{0}, head);
  PutNumber(Checksum(BytesOf(absl::string_view(head))), head);
  return head;
}

void AppendFramed(const Entry& entry, std::string& out) {
  const size_t begin = out.size();
  out.resize(begin + kRecordHead);
  Encode(entry, out);
  std::string head;
  PutNumber(static_cast<uint32_t>(out.size() - begin - kRecordHead), head);
  PutNumber(entry.sequence, head);
  PutNumber(ShortChecksum(head), head);
  out.replace(begin, kRecordHead, head);
  PutNumber(Checksum(BytesOf(absl::string_view(out).substr(begin))), out);
}

absl::StatusOr<Reader> Reader::Open(const std::string& path, uint64_t synced) {
  Reader reader(path);
  reader.synced_ = synced;
  reader.fd_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader.fd_.open()) return FileError("cannot open", path);
  MACAW_ASSIGN_OR_RETURN(const absl::string_view head, reader.Look(kFileHead));
  MACAW_RETURN_IF_ERROR(CheckFileHead(head, path));
  reader.offset_ = kFileHead;
  return reader;
}

absl::StatusOr<absl::string_view> Reader::Look(size_t bytes) {
  size_t known = buffer_at_ + buffer_.size() - offset_;
  if (known < bytes) {
    buffer_.erase(0, offset_ - buffer_at_);
    buffer_at_ = offset_;
    while (known < bytes) {
      // Read in pieces, so that a damaged length allocates no more memory than the file has bytes.
      buffer_.resize(known + kReadAtOnce);
      const ssize_t got = ::pread(fd_.get(), buffer_.data() + known, kReadAtOnce,
                                  static_cast<off_t>(offset_ + known));
      const int error = errno;
      buffer_.resize(known + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0 && error == EINTR) continue;
      errno = error;
      if (got < 0) return FileError("cannot read", path_);
      if (got == 0) break;
      known = buffer_.size();
    }
  }
  return absl::string_view(buffer_).substr(offset_ - buffer_at_, bytes);
}

absl::StatusOr<bool> Reader::NeverWritten(size_t from) {
  MACAW_ASSIGN_OR_RETURN(const uint64_t bytes, TornBytes());
  MACAW_ASSIGN_OR_RETURN(const absl::string_view rest, Look(bytes));
  return std::ranges::all_of(rest.substr(std::min(from, rest.size())),
                             [](char byte) { return byte == 0; });
}

absl::StatusOr<std::optional<Entry>> Reader::Damage(absl::string_view what) const {
  if (offset_ >= synced_) return std::nullopt;
  return absl::DataLossError(absl::StrCat(
      path_, ": record ", sequence_ + 1, ", at byte ", offset_, ", is damaged: ", what,
      ". Restore the file from a copy, or move it away: the run can go on without it, and then has "
      "a new log from there on"));
}

absl::StatusOr<std::optional<Entry>> Reader::Next() {
  MACAW_ASSIGN_OR_RETURN(const absl::string_view head, Look(kRecordHead));
  if (head.size() < kRecordHead) return std::nullopt;
  const auto bytes = NumberAt<uint32_t>(head, 0);
  const auto sequence = NumberAt<uint64_t>(head, 4);
  if (NumberAt<uint32_t>(head, 12) != ShortChecksum(head.substr(0, 12))) {
    MACAW_ASSIGN_OR_RETURN(const bool torn, NeverWritten(0));
    if (torn) return std::nullopt;
    return Damage("its head has another checksum");
  }
  if (sequence != sequence_ + 1)
    return Damage(absl::StrCat("it has the sequence number ", sequence));
  const size_t size = kRecordHead + size_t{bytes} + kRecordFoot;
  MACAW_ASSIGN_OR_RETURN(const absl::string_view whole, Look(size));
  if (whole.size() < size) return std::nullopt;
  const auto checksum = NumberAt<uint64_t>(whole, size - kRecordFoot);
  if (checksum != Checksum(BytesOf(whole.substr(0, size - kRecordFoot)))) {
    MACAW_ASSIGN_OR_RETURN(const bool torn, NeverWritten(size - kRecordFoot));
    if (torn) return std::nullopt;
    return Damage("its bytes have another checksum");
  }
  absl::StatusOr<Entry> entry = Decode(whole.substr(kRecordHead, bytes), sequence);
  if (!entry.ok()) return Damage(entry.status().message());
  offset_ += size;
  sequence_ = sequence;
  return *std::move(entry);
}

absl::StatusOr<uint64_t> Reader::TornBytes() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return FileError("cannot read", path_);
  const auto size = static_cast<uint64_t>(info.st_size);
  return size > offset_ ? size - offset_ : 0;
}

}  // namespace macaw::server::log
