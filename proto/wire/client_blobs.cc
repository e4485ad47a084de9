#include "proto/wire/client_blobs.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "core/checksum.h"
#include "core/file_blocks.h"
#include "core/memory.h"
#include "core/status.h"
#include "proto/wire/address.h"
#include "proto/wire/bulk_stream.h"
#include "proto/wire/chunk.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

using fleet::UploadVerdict;

constexpr char kUploadMethod[] = "/macaw.v1.Fleet/Upload";
constexpr char kDownloadMethod[] = "/macaw.v1.Fleet/Download";
constexpr int kFruitlessTries = 5;  // in a row; progress resets the count
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(1);
constexpr uint64_t kLargeBlob = uint64_t{16} << 20;
// A slice takes this part of the time after which a connection without progress counts as dead.
constexpr int kSlicesInAStall = 8;

// Broken connections and damaged bytes: the next try may succeed.
bool WorthAnotherTry(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case v1::Refusal::REASON_CHECKSUM:
    case v1::Refusal::REASON_OFFSET:
    case v1::Refusal::REASON_NOT_BEGUN:
      return true;
    default:
      return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  }
}

Duration NextPause(Duration pause) { return std::min(2 * pause, kLongestPause); }

}  // namespace

OpenCalls::Scope::Scope(OpenCalls& calls, Duration timeout) : Scope(calls) {
  context_.set_deadline(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
}

OpenCalls::Scope::Scope(OpenCalls& calls) : calls_(calls) {
  if (!calls_.token_.empty()) context_.AddMetadata(kTokenKey, calls_.token_);
  absl::MutexLock lock(&calls_.mutex_);
  if (calls_.shut()) context_.TryCancel();
  calls_.open_.insert(&context_);
}

OpenCalls::Scope::~Scope() {
  absl::MutexLock lock(&calls_.mutex_);
  calls_.open_.erase(&context_);
}

absl::Status OpenCalls::Scope::Explain(absl::Status status) const {
  if (status.ok()) return status;
  if (calls_.shut()) return absl::CancelledError("the link is shut down");
  if (absl::IsCancelled(status))
    return absl::UnavailableError("the server ended the call; is it shutting down?");
  // What gRPC says when a TLS record arrives damaged. No handler answers so.
  if (absl::IsUnknown(status))
    return absl::UnavailableError(absl::StrCat("the connection broke: ", status.message()));
  return NameProxy(std::move(status), calls_.proxy_);
}

void OpenCalls::CancelAll() {
  absl::MutexLock lock(&mutex_);
  shut_.request_stop();
  for (grpc::ClientContext* context : open_) context->TryCancel();
}

BlobMover::BlobMover(Connection& connection, const ClientOptions& options, OpenCalls& calls,
                     TrafficCounter& traffic, std::unique_ptr<PartialFiles> partials)
    : connection_(connection),
      options_(options),
      private_(IsPrivate(options.server)),
      calls_(calls),
      traffic_(traffic),
      up_(options.stall_timeout / kSlicesInAStall),
      down_(options.stall_timeout / kSlicesInAStall),
      up_limit_(options.max_upload, SteadyClock()),
      down_limit_(options.max_download, SteadyClock()),
      partials_(std::move(partials)) {}

bool BlobMover::AwaitTurn(uint64_t bytes) {
  return bytes <= kLeastChunkBytes || calls_.Pause(up_limit_.Wait());
}

absl::StatusOr<UploadVerdict> BlobMover::Upload(const fleet::Blob& blob, SessionId session,
                                                Ask ask) {
  if (blob.bytes == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("upload: the bytes of ", blob.digest.Hex(), " are not at hand"));
  }
  if (blob.size >= kLargeBlob) KeepFreedMegabytes();
  const TimePoint patience_ends =
      SteadyClock().Now() + options_.call_timeout;  // limit on the time with a busy server
  Duration pause = kFirstPause;
  uint64_t best = 0;
  for (int tries = 0; tries < kFruitlessTries;) {
    const auto answer = ask();
    absl::Status status = answer.status();
    if (answer.ok() && answer->verdict == UploadVerdict::kBusy) {
      if (SteadyClock().Now() > patience_ends) {
        return absl::UnavailableError(
            "the server has no room for an upload: its memory for uploads is taken, or it still "
            "works on this worker's former one");
      }
    } else if (answer.ok() && answer->verdict != UploadVerdict::kSend) {
      return answer->verdict;
    } else {
      uint64_t kept = 0;
      if (answer.ok()) {
        kept = answer->offset;
        status = UploadFrom(blob, session, kept);
        if (status.ok() && kept == blob.size) return UploadVerdict::kHave;
      }
      if (!status.ok() && !WorthAnotherTry(status)) return status;
      up_.Failed();
      tries = kept > best ? 0 : tries + 1;
      if (kept > best) pause = kFirstPause;
      best = std::max(best, kept);
      if (tries == kFruitlessTries) {
        return absl::UnavailableError(absl::StrCat("upload of ", blob.size,
                                                   " bytes does not get past byte ", best, ": ",
                                                   status.message()));
      }
    }
    if (!calls_.Pause(pause)) return absl::CancelledError("the link is shut down");
    pause = NextPause(pause);
  }
  return absl::InternalError("upload: not reached");
}

absl::Status BlobMover::UploadFrom(const fleet::Blob& blob, SessionId session, uint64_t& at) {
  if (at > blob.size) return absl::InternalError("the server keeps more bytes than the blob has");
  while (true) {
    const uint64_t before = at;
    MACAW_RETURN_IF_ERROR(UploadSlice(blob, session, at));
    if (at == blob.size || at <= before) return absl::OkStatus();
  }
}

void BlobMover::Introduce(Connection::Line& line) {
  if (line.introduced) return;
  OpenCalls::Scope call(calls_, options_.call_timeout);
  v1::HelloRequest hello;
  hello.set_major(kProtocolMajor);
  hello.set_minor(kProtocolMinor);
  hello.set_program("macaw");
  v1::HelloReply reply;
  line.introduced = line.stub.Hello(&call.context(), hello, &reply).ok();
}

absl::Status BlobMover::UploadSlice(const fleet::Blob& blob, SessionId session, uint64_t& at) {
  const uint64_t slice = private_ ? blob.size : up_.slice();
  const uint64_t chunk = private_ ? kChunkBytes : up_limit_.AtOnce(LinkPace::ChunkOf(slice));
  const uint64_t end = at + std::min(slice, blob.size - at);
  const auto line = connection_.Dial([this] { return calls_.shut(); });
  if (std::min(chunk, end - at) > kMaxFirstBytes) Introduce(*line);
  OpenCalls::Scope call(calls_);
  grpc::GenericStub stub(line->channel);
  BulkStream stream(stub, kUploadMethod, call.context(), options_.stall_timeout);
  // The first chunk is sent even when all bytes are on the server: it names the blob, and the
  // answer gives the result of the server's digest check.
  const TimePoint start = SteadyClock().Now();
  uint64_t sent = std::min(at, blob.size - 1);
  for (bool first = true; sent < end; first = false) {
    const size_t size = std::min(chunk, end - sent);
    if (!calls_.Pause(up_limit_.Wait())) break;
    if (!stream.Write(EncodeChunk(blob.bytes, sent, size, first ? blob.digest : Digest{},
                                  first ? session : SessionId{}))) {
      break;
    }
    sent += size;
    traffic_.CountUp(size);
    up_limit_.Count(size);
    chunks_.Count();
  }
  std::optional<grpc::ByteBuffer> answer;
  // After the last chunk the server still has to hash the rest.
  if (sent == end && stream.WritesDone()) {
    const uint64_t to_hash = end == blob.size ? blob.size : 0;
    answer = stream.Read(options_.stall_timeout + std::chrono::seconds(to_hash / (100 << 20)));
    if (answer.has_value()) stream.Read();  // reads the end of the stream, which brings the status
  }
  const absl::Status status = stream.Finish();
  connection_.CallEnded(line, status);
  MACAW_RETURN_IF_ERROR(call.Explain(status));
  v1::UploadReply reply;
  if (!answer.has_value() || !reply.ParseFromString(ToString(*answer)) ||
      reply.durable_offset() > blob.size) {
    return Malformed("durable_offset", "the server's answer to an upload makes no sense");
  }
  if (reply.durable_offset() > at)
    up_.Moved(reply.durable_offset() - at, SteadyClock().Now() - start);
  at = reply.durable_offset();
  return absl::OkStatus();
}

void BlobMover::Incoming::Hash() {
  while (digester.wanted() <= offset) digester.Add(std::as_const(buffer).bytes().first(offset));
}

absl::StatusOr<BlobMover::Incoming> BlobMover::Begin(const Digest& digest, uint64_t size) {
  if (size >= kLargeBlob) KeepFreedMegabytes();
  std::shared_ptr<PartialFile> file;
  if (partials_ != nullptr && size > LinkPace::kFirstSlice)
    file = partials_->Take(absl::StrCat(digest.Hex(), "-", size), size);
  AlignedBuffer buffer;
  try {
    if (file != nullptr) buffer = file->Map(size);
    if (buffer.size() == 0) buffer = AlignedBuffer::Unset(size);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a blob of ", size, " bytes"));
  }
  Incoming blob{.digest = digest, .buffer = std::move(buffer), .digester = BlobDigester(size)};
  blob.file = std::move(file);
  if (blob.file != nullptr) blob.offset = blob.file->Read(blob.buffer.bytes());
  if (!private_) blob.Hash();
  return blob;
}

absl::StatusOr<fleet::Blob> BlobMover::Download(const Digest& digest, uint64_t size) {
  while (true) {
    MACAW_ASSIGN_OR_RETURN(Incoming blob, Begin(digest, size));
    const bool from_file = blob.offset > 0;
    const absl::Status status = Complete(blob);
    const bool right = status.ok() && (private_ || blob.digester.Finish() == digest);
    if (blob.file != nullptr && (status.ok() || absl::IsNotFound(status))) blob.file->Discard();
    MACAW_RETURN_IF_ERROR(status);
    if (right) {
      return fleet::Blob{digest, size,
                         std::make_shared<const AlignedBuffer>(std::move(blob.buffer))};
    }
    if (from_file) continue;  // the beginning was not this blob's
    return Refuse(v1::Refusal::REASON_DIGEST_MISMATCH,
                  absl::StrCat("the downloaded bytes are not those of ", digest.Hex()), "", digest);
  }
}

absl::Status BlobMover::Complete(Incoming& blob) {
  const uint64_t size = blob.buffer.size();
  Duration pause = kFirstPause;
  for (int tries = 0; blob.offset < size;) {
    const uint64_t before = blob.offset;
    const absl::Status status = DownloadSlice(blob);
    if (blob.offset == size) break;
    if (!status.ok() && !WorthAnotherTry(status)) return status;
    if (blob.offset > before) tries = 0, pause = kFirstPause;
    if (status.ok() && blob.offset > before) continue;  // the next slice
    down_.Failed();
    if (++tries > kFruitlessTries) {
      return absl::UnavailableError(
          absl::StrCat("download of ", size, " bytes does not get past byte ", blob.offset, ": ",
                       status.ok() ? "the stream ends there" : status.message()));
    }
    if (!calls_.Pause(pause)) return absl::CancelledError("the link is shut down");
    pause = NextPause(pause);
  }
  return absl::OkStatus();
}

absl::Status BlobMover::DownloadSlice(Incoming& blob) {
  if (!calls_.Pause(down_limit_.Wait())) return absl::CancelledError("the link is shut down");
  const uint64_t slice = down_limit_.AtOnce(down_.slice()), begin = blob.offset;
  OpenCalls::Scope call(calls_);
  const auto line = connection_.Dial([this] { return calls_.shut(); });
  grpc::GenericStub stub(line->channel);
  BulkStream stream(stub, kDownloadMethod, call.context(), options_.stall_timeout);
  v1::DownloadRequest request;
  request.set_digest(ToWire(blob.digest));
  request.set_offset(blob.offset);
  if (!private_) {
    request.set_length(slice);
    request.set_chunk_bytes(LinkPace::ChunkOf(slice));
  }
  const TimePoint start = SteadyClock().Now();
  if (stream.Write(FromString(request.SerializeAsString()))) stream.WritesDone();
  while (auto message = stream.Read()) {
    traffic_.CountDown(message->Length());
    MACAW_ASSIGN_OR_RETURN(const ReceivedChunk chunk, DecodeChunk(*message));
    if (chunk.offset != blob.offset || chunk.size > blob.buffer.size() - blob.offset) {
      return Refuse(v1::Refusal::REASON_OFFSET, "a chunk does not follow the one before", "offset",
                    blob.digest);
    }
    const auto place = blob.buffer.bytes().subspan(blob.offset, chunk.size);
    if (Checksum(chunk.data) != chunk.checksum) {
      return Refuse(v1::Refusal::REASON_CHECKSUM,
                    absl::StrCat("the chunk at ", blob.offset, " arrived damaged"), "checksum",
                    blob.digest);
    }
    Overwrite(place.data(), chunk.data);
    blob.offset += chunk.size;
    down_limit_.Count(chunk.size);
    // These run while gRPC reads the next chunk.
    if (!private_) blob.Hash();
    if (blob.file != nullptr) blob.file->Append(place);
    blob.passed.Until(blob.offset);
    chunks_.Count();
  }
  const absl::Status status = stream.Finish();
  connection_.CallEnded(line, status);
  if (status.ok() && blob.offset > begin)
    down_.Moved(blob.offset - begin, SteadyClock().Now() - start);
  return call.Explain(status);
}

}  // namespace macaw::wire
