#include <algorithm>
#include <utility>

#include "proto/wire/chunk.h"
#include "proto/wire/field_checks.h"
#include "proto/wire/limits.h"
#include "proto/wire/service.h"

// Bulk data. gRPC holds one chunk at a time, so a stream takes 1 MiB of memory however large its
// blob is, and holds the blob (open_downloads.h).
namespace macaw::wire {
namespace {

class DownloadStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit DownloadStream(const absl::Status& refusal) { Finish(ToGrpc(refusal)); }
  // Sends [offset, end). `number`: its own among the downloads.
  DownloadStream(OpenDownloads& downloads, uint64_t number,
                 std::shared_ptr<const AlignedBuffer> blob, uint64_t offset, uint64_t end,
                 uint64_t chunk_bytes)
      : downloads_(&downloads),
        number_(number),
        blob_(std::move(blob)),
        offset_(offset),
        end_(end),
        chunk_bytes_(chunk_bytes) {
    WriteNext();
  }
  void OnWriteDone(bool ok) override {
    chunk_.Clear();
    if (ok) {
      downloads_->Moved(number_);
      WriteNext();
    } else {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
    }
  }
  void OnDone() override {
    if (downloads_ != nullptr) downloads_->Leave(number_);
    delete this;
  }

 private:
  void WriteNext() {
    if (offset_ == end_) return Finish(grpc::Status::OK);
    const size_t size = std::min<size_t>(chunk_bytes_, end_ - offset_);
    chunk_ = EncodeChunk(blob_, offset_, size, Digest{});
    offset_ += size;
    StartWrite(&chunk_);
  }

  OpenDownloads* const downloads_ = nullptr;  // null: the download was refused
  const uint64_t number_ = 0;
  std::shared_ptr<const AlignedBuffer> blob_;
  uint64_t offset_ = 0, end_ = 0, chunk_bytes_ = 0;
  grpc::ByteBuffer chunk_;
};

// A cancelled stream ends like one that was closed early: its next read fails, and the bytes that
// have arrived are kept.
class UploadStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // `own`: where the caller's population goes, which has no session.
  UploadStream(UploadStore& uploads, SessionId own, grpc::ByteBuffer* reply)
      : uploads_(uploads), own_(own), reply_(reply) {
    StartRead(&chunk_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return End();
    if (absl::Status status = Keep(); !status.ok()) return Finish(ToGrpc(status));
    chunk_.Clear();
    StartRead(&chunk_);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Keep() {
    auto chunk = DecodeChunk(chunk_);
    if (!chunk.ok()) return chunk.status();
    if (upload_ == nullptr) {
      if (chunk->digest.IsZero()) return Malformed("digest", "the first chunk names the blob");
      upload_ = uploads_.Find(chunk->session.value == 0 ? own_ : chunk->session, chunk->digest);
      if (upload_ == nullptr) {
        return Refuse(v1::Refusal::REASON_NOT_BEGUN, "ask with BeginUpload before sending",
                      "digest", chunk->digest);
      }
    }
    return upload_->Append(chunk->offset, chunk->checksum, chunk->data);
  }

  void End() {
    if (upload_ == nullptr) return Finish(ToGrpc(Malformed("chunk", "an upload without a chunk")));
    if (upload_->received() < upload_->size()) return Answer(upload_->received());
    // The last bytes may still be in the hasher. Hashing always ends, so this object lives until
    // then.
    upload_->WhenComplete([this](absl::Status status) {
      if (!status.ok()) return Finish(ToGrpc(status));
      Answer(upload_->size());
    });
  }

  void Answer(uint64_t offset) {
    v1::UploadReply reply;
    reply.set_durable_offset(offset);
    *reply_ = FromString(reply.SerializeAsString());
    Finish(grpc::Status::OK);
  }

  UploadStore& uploads_;
  const SessionId own_;
  grpc::ByteBuffer* const reply_;
  grpc::ByteBuffer chunk_;
  std::shared_ptr<wire::Upload> upload_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* FleetService::Download(
    Context* context, const grpc::ByteBuffer* request) {
  v1::DownloadRequest message;
  FieldChecks f;
  f.Require(message.ParseFromString(ToString(*request)), "request", "is not a DownloadRequest");
  const Digest digest = f.ReadDigest("digest", message.digest());
  if (!f.status().ok()) return new DownloadStream(f.status());
  const fleet::CallerPtr caller = CallerOf(*state_, *context);
  auto blob = digest.IsZero() ? nullptr : state_->handler.FindBlob(*caller, digest);
  if (blob == nullptr) {
    return new DownloadStream(
        absl::NotFoundError(absl::StrCat("blob ", digest.Hex(), " is no longer served")));
  }
  if (message.offset() > blob->size()) {
    return new DownloadStream(
        Refuse(v1::Refusal::REASON_OFFSET, "the offset lies behind the blob", "offset", digest));
  }
  const uint64_t rest = blob->size() - message.offset();
  const uint64_t length = message.length() == 0 ? rest : std::min(message.length(), rest);
  const uint64_t chunk = message.chunk_bytes() == 0
                             ? kChunkBytes
                             : std::clamp(message.chunk_bytes(), kLeastChunkBytes, kChunkBytes);
  const uint64_t number =
      state_->downloads.Enter(caller->node, [context] { context->TryCancel(); });
  return new DownloadStream(state_->downloads, number, std::move(blob), message.offset(),
                            message.offset() + length, chunk);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* FleetService::Upload(Context* context,
                                                                grpc::ByteBuffer* reply) {
  return new UploadStream(state_->uploads, CallerNumber(*CallerOf(*state_, *context)), reply);
}

}  // namespace macaw::wire
