#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/passed_bytes.h"
#include "proto/wire/chunk.h"
#include "proto/wire/field_checks.h"
#include "proto/wire/limits.h"
#include "proto/wire/service.h"
#include "proto/wire/turn_wait.h"

// Bulk data. gRPC holds one chunk at a time, so a stream takes 1 MiB of memory however large its
// blob is, and holds the blob (open_downloads.h).
namespace macaw::wire {
namespace {

// What a node that waits for its turn is sent, with each pulse.
constexpr uint64_t kPulseBytes = uint64_t{64} << 10;

// Sends a piece of a blob, one chunk after the other. The constructor begins the first one; for a
// node that waits for its turn, the thread that ends the wait does (turn_wait.h). OnWriteDone
// begins each further one. gRPC calls nothing here before the constructor has returned. OnCancel
// may run at the same time as the others; OnDone is the last call.
class DownloadStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  struct Piece {
    Digest digest;  // the blob's
    std::shared_ptr<const AlignedBuffer> blob;
    uint64_t offset = 0, end = 0, chunk_bytes = 0;
  };

  explicit DownloadStream(const absl::Status& refusal) { Finish(ToGrpc(refusal)); }
  // Sends the piece to `caller`, which takes turns as `node`. `number`: its own among the
  // downloads.
  DownloadStream(ServiceState& state, uint64_t number, Piece piece, fleet::CallerPtr caller,
                 const std::string& node)
      : state_(&state),
        number_(number),
        caller_(std::move(caller)),
        piece_(std::move(piece)),
        begin_(piece_.offset),
        sent_(piece_.blob->bytes().subspan(begin_, piece_.end - begin_)) {
    if (state.turns.IsFor(piece_.blob->size())) {
      wait_.emplace(state.turns, node, piece_.digest,
                    [this](TurnWait::Over by, Duration waited) { Begin(by, waited); });
    } else {
      WriteNext();
    }
  }
  void OnWriteDone(bool ok) override {
    chunk_.Clear();
    if (ok) {
      state_->downloads.Moved(number_);
      sent_.Until(piece_.offset - begin_);
      if (wait_.has_value()) wait_->Moved();
      WriteNext();
    } else {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
    }
  }
  void OnCancel() override {
    if (wait_.has_value() && wait_->Stop())
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
  }
  void OnDone() override {
    if (wait_.has_value()) wait_->Leave(whole_);
    if (state_ != nullptr) state_->downloads.Leave(number_);
    delete this;
  }

 private:
  void Begin(TurnWait::Over by, Duration waited) {
    // A node that still waits is sent a little, and asks for the rest.
    if (by == TurnWait::Over::kPulse) {
      if (waited > Duration{}) state_->handler.Waited(*caller_, waited);
      piece_.end = std::min(piece_.end, piece_.offset + kPulseBytes);
    }
    WriteNext();
  }
  void WriteNext() {
    if (piece_.offset == piece_.end) {
      whole_ = piece_.end == piece_.blob->size();
      return Finish(grpc::Status::OK);
    }
    const size_t size = std::min<size_t>(piece_.chunk_bytes, piece_.end - piece_.offset);
    chunk_ = EncodeChunk(piece_.blob, piece_.offset, size, Digest{});
    piece_.offset += size;
    StartWrite(&chunk_);
  }

  ServiceState* const state_ = nullptr;  // null: the download was refused
  const uint64_t number_ = 0;
  const fleet::CallerPtr caller_;
  Piece piece_;
  const uint64_t begin_ = 0;
  PassedBytes sent_{{}};
  grpc::ByteBuffer chunk_;
  bool whole_ = false;            // the blob's last byte was sent
  std::optional<TurnWait> wait_;  // none: it needs no turn
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
  DownloadStream::Piece piece{.digest = digest,
                              .blob = std::move(blob),
                              .offset = message.offset(),
                              .end = message.offset() + length};
  piece.chunk_bytes = message.chunk_bytes() == 0
                          ? kChunkBytes
                          : std::clamp(message.chunk_bytes(), kLeastChunkBytes, kChunkBytes);
  const uint64_t number =
      state_->downloads.Enter(caller->node, [context] { context->TryCancel(); });
  // A caller without a name is its connection.
  const std::string node = caller->node.empty() ? context->peer() : caller->node;
  return new DownloadStream(*state_, number, std::move(piece), caller, node);
}

grpc::ServerReadReactor<grpc::ByteBuffer>* FleetService::Upload(Context* context,
                                                                grpc::ByteBuffer* reply) {
  return new UploadStream(state_->uploads, CallerNumber(*CallerOf(*state_, *context)), reply);
}

}  // namespace macaw::wire
