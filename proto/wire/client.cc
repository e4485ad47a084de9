#include <grpcpp/create_channel.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "core/logging.h"
#include "core/status.h"
#include "macaw/v1/fleet.grpc.pb.h"
#include "proto/wire/address.h"
#include "proto/wire/channel_settings.h"
#include "proto/wire/client_blobs.h"
#include "proto/wire/convert.h"
#include "proto/wire/credentials.h"
#include "proto/wire/limits.h"
#include "proto/wire/proxy.h"
#include "proto/wire/refusal.h"
#include "proto/wire/remote.h"
#include "proto/wire/shared_memory.h"

namespace macaw::wire {
namespace {

using fleet::BlobPurpose;
using fleet::UploadVerdict;

// When a file was last changed, in nanoseconds; 0: there is none.
int64_t ChangeTime(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

constexpr int kUploadRounds = 3;  // a round: call, learn that a blob is missing, upload it, call
                                  // again

class RemoteLink final : public fleet::FleetLink {
 public:
  RemoteLink(const ClientOptions& options, Connection::MakeChannel make,
             Connection::Version version, std::unique_ptr<PartialFiles> partials,
             std::optional<Proxy> proxy)
      : options_(options),
        share_(options.share_memory && IsPrivate(options.server)),
        inline_bytes_(IsPrivate(options.server) ? InlineBytes::kTrust : InlineBytes::kVerify),
        calls_(options.token, std::move(proxy)),
        connection_(std::move(make), std::move(version)),
        blobs_(connection_, options, calls_, traffic_, std::move(partials)) {}
  ~RemoteLink() override { calls_.CancelAll(); }

  absl::StatusOr<fleet::HelloReply> Hello(const fleet::HelloRequest& request) override {
    auto reply =
        Call<fleet::HelloReply>(&v1::Fleet::Stub::Hello, ToWire(request), options_.call_timeout);
    if (reply.ok()) Remember(*reply);
    return reply;
  }

  absl::StatusOr<fleet::RegisterReply> Register(const fleet::RegisterRequest& request) override {
    MACAW_ASSIGN_OR_RETURN(const Limits limits, GetLimits());
    const v1::RegisterRequest message = ToWire(request, InlineRule{limits.max_inline_bytes, {}});
    for (int i = 0;; ++i) {
      auto reply =
          Call<fleet::RegisterReply>(&v1::Fleet::Stub::Register, message, options_.call_timeout);
      CountLoss(reply.status());
      if (ReasonOf(reply.status()) != v1::Refusal::REASON_BLOB_MISSING || i == kUploadRounds)
        return reply;
      MACAW_ASSIGN_OR_RETURN(const UploadVerdict verdict,
                             Upload(request.table, {.purpose = BlobPurpose::kPopulation}));
      if (verdict == UploadVerdict::kTooLarge) {
        return Refuse(v1::Refusal::REASON_TOO_LARGE,
                      absl::StrCat("the table of clients has ", request.table.size,
                                   " bytes, the server takes ", limits.max_blob_bytes));
      }
    }
  }

#define MACAW_SEND(Name)                                                                  \
  absl::StatusOr<fleet::Name##Reply> Name(const fleet::Name##Request& request) override { \
    return Call<fleet::Name##Reply>(&v1::Fleet::Stub::Name, ToWire(request),              \
                                    PatienceOf(request) + options_.call_timeout);         \
  }
  MACAW_SEND(Lease)
  MACAW_FLEET_PLAIN_CALLS(MACAW_SEND)
#undef MACAW_SEND

  absl::StatusOr<fleet::CommitReply> Commit(const fleet::CommitRequest& request) override {
    MACAW_ASSIGN_OR_RETURN(const Limits limits, GetLimits());
    v1::CommitRequest message = ToWire(request, InlineRule{limits.max_inline_bytes, {}, share_});
    const fleet::Blob sums = request.part.has_value() ? request.part->sums : fleet::Blob{};
    const bool sums_inside = message.part().sums().has_inline_();
    const bool sums_told = message.part().sums().has_shared();
    const fleet::Blob records = PackRecords(message, limits);
    for (int i = 0;; ++i) {
      // Blobs that do not fit the message are uploaded first, shared sums only when the server
      // could not map them. The verdict on an upload comes before any byte is sent, and may make
      // the other uploads needless.
      for (const auto& [blob, purpose] :
           {std::pair(&sums, BlobPurpose::kSums), std::pair(&records, BlobPurpose::kRecords)}) {
        if (!blob->named() || (blob == &sums && (sums_inside || (sums_told && i == 0)))) continue;
        MACAW_ASSIGN_OR_RETURN(const UploadVerdict verdict,
                               Upload(*blob, {.purpose = purpose,
                                              .session = request.session,
                                              .round = request.part->round,
                                              .commit_id = request.commit_id}));
        switch (verdict) {
          case UploadVerdict::kStale:
            return fleet::CommitReply{.verdict = fleet::Verdict::kStale,
                                      .reason = "the part is no longer wanted"};
          case UploadVerdict::kNotNeeded:
            return fleet::CommitReply{.verdict = fleet::Verdict::kDuplicate,
                                      .reason = "the server has this part already"};
          case UploadVerdict::kTooLarge:
            return fleet::CommitReply{
                .verdict = fleet::Verdict::kRefused,
                .reason = absl::StrCat("a blob of ", blob->size, " bytes; the server takes ",
                                       limits.max_blob_bytes)};
          default:
            break;
        }
      }
      auto reply = Call<fleet::CommitReply>(&v1::Fleet::Stub::Commit, message,
                                            PatienceOf(request) + options_.call_timeout);
      CountLoss(reply.status());
      if (ReasonOf(reply.status()) != v1::Refusal::REASON_BLOB_MISSING || i == kUploadRounds)
        return reply;
    }
  }

  absl::StatusOr<fleet::Blob> Fetch(const fleet::Blob& blob) override {
    if (blob.bytes != nullptr) return blob;
    if (!blob.named()) return absl::InvalidArgumentError("fetch: the blob has no name");
    MACAW_ASSIGN_OR_RETURN(const Limits limits, GetLimits());
    if (blob.size > limits.max_blob_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("fetch: ", blob.size,
                                                       " bytes are more than the ",
                                                       limits.max_blob_bytes, " agreed in hello"));
    }
    if (blob.place.has_value() && share_) {
      // If the blob is no longer there, the server will say so.
      auto mapped = MapShared(*blob.place, blob.digest, blob.size);
      if (mapped.ok()) return fleet::Blob{blob.digest, blob.size, *std::move(mapped)};
    }
    return blobs_.Download(blob.digest, blob.size);
  }

  void Shutdown() override { calls_.CancelAll(); }
  uint64_t moved() const override { return blobs_.moved(); }
  fleet::Traffic traffic() const override { return traffic_.total(); }
  bool shares_memory() const override { return share_; }

 private:
  struct Limits {
    uint64_t max_inline_bytes = 0;
    uint64_t max_blob_bytes = 0;
  };

  template <typename T, typename Request, typename Reply>
  absl::StatusOr<T> Call(grpc::Status (v1::Fleet::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Reply*),
                         const Request& request, Duration timeout) {
    if (!blobs_.AwaitTurn(request.ByteSizeLong()))
      return absl::CancelledError("the link is shut down");
    const auto line = connection_.Dial([this] { return calls_.shut(); });
    if (request.ByteSizeLong() > kMaxFirstBytes) blobs_.Introduce(*line);
    OpenCalls::Scope call(calls_, timeout);
    Reply reply;
    const absl::Status status = FromGrpc((line->stub.*method)(&call.context(), request, &reply));
    if (status.ok()) line->introduced = true;
    blobs_.Count(request.ByteSizeLong(), reply.ByteSizeLong());
    connection_.CallEnded(line, status);
    // A request that never reached the server was not sent, as far as anybody knows.
    if (!absl::IsUnavailable(status)) traffic_.CountUp(request.ByteSizeLong());
    traffic_.CountDown(reply.ByteSizeLong());
    MACAW_RETURN_IF_ERROR(call.Explain(status));
    return FromWire(reply, inline_bytes_);
  }

  // A call with a blob inside did not arrive: smaller pieces may.
  void CountLoss(const absl::Status& status) {
    const bool broke =
        absl::IsUnavailable(status) && ReasonOf(status) == v1::Refusal::REASON_UNSPECIFIED;
    if (broke || absl::IsDeadlineExceeded(status)) blobs_.MessageLost();
  }

  void Remember(const fleet::HelloReply& reply) {
    absl::MutexLock lock(&mutex_);
    limits_ =
        Limits{std::min<uint64_t>(reply.max_inline_bytes, kMaxInlineBytes), reply.max_blob_bytes};
  }

  // The reply of the last Hello, or of one that is made now, within what the connection bears.
  absl::StatusOr<Limits> GetLimits() {
    const auto known = [this] {
      absl::MutexLock lock(&mutex_);
      return limits_;
    };
    std::optional<Limits> limits = known();
    if (!limits.has_value()) {
      MACAW_RETURN_IF_ERROR(Hello({kProtocolMajor, kProtocolMinor, "macaw"}).status());
      limits = known();
    }
    limits->max_inline_bytes = std::min(limits->max_inline_bytes, blobs_.most_inside());
    return *limits;
  }

  // Turns the part into a blob if its records do not fit the message.
  static fleet::Blob PackRecords(v1::CommitRequest& message, const Limits& limits) {
    if (!message.has_part()) return {};
    const size_t bytes = message.part().ByteSizeLong();
    const size_t inside = message.part().sums().inline_().size();
    if (bytes - inside <=
        std::min<size_t>(kMaxPartBytes, std::max<size_t>(limits.max_inline_bytes, 1024)))
      return {};
    AlignedBuffer buffer = AlignedBuffer::Unset(bytes);
    message.part().SerializeToArray(buffer.bytes().data(), static_cast<int>(bytes));
    fleet::Blob blob = fleet::Blob::Of(std::move(buffer));
    *message.mutable_part_blob() = ToWire(blob, InlineRule{});  // replaces `part`
    return blob;
  }

  // `offer` gives the purpose and the session.
  absl::StatusOr<UploadVerdict> Upload(const fleet::Blob& blob, fleet::UploadOffer offer) {
    offer.digest = blob.digest;
    offer.size = blob.size;
    if (share_) offer.place = PublishShared(blob);
    const v1::BeginUploadRequest begin = ToWire(offer);
    return blobs_.Upload(blob, offer.session, [&] {
      return Call<fleet::UploadAnswer>(&v1::Fleet::Stub::BeginUpload, begin, options_.call_timeout);
    });
  }

  const ClientOptions options_;
  const bool share_;  // whether memory is shared with the server
  const InlineBytes inline_bytes_;
  TrafficCounter traffic_;
  OpenCalls calls_;
  Connection connection_;
  BlobMover blobs_;
  absl::Mutex mutex_;
  std::optional<Limits> limits_ ABSL_GUARDED_BY(mutex_);
};

// Where the options name no folder, or it cannot be used: null.
std::unique_ptr<PartialFiles> PartialDownloads(const ClientOptions& options) {
  if (options.partial_downloads.empty() || IsPrivate(options.server)) return nullptr;
  auto partials = PartialFiles::Open({.folder = options.partial_downloads});
  if (partials.ok()) return *std::move(partials);
  Logger("wire").Warning(absl::StrCat("downloads_begin_again_after_a_restart why=\"",
                                      partials.status().message(), "\""));
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<fleet::FleetLink>> Dial(const ClientOptions& options) {
  MACAW_ASSIGN_OR_RETURN(const Address address, ParseAddress(options.server));
  for (const uint64_t rate : {options.max_upload, options.max_download}) {
    if (rate == 0 || rate >= kLeastRate) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a link of at most ", rate, " bytes a second: the least limit is ", kLeastRate));
  }
  auto credentials = ChannelCredentialsFor(address, options.identity);
  MACAW_RETURN_IF_ERROR(credentials.status());
  grpc::ChannelArguments arguments;
  for (const auto& [key, value] : ClientSettings(address)) arguments.SetInt(key, value);
  const auto make = [address, arguments, identity = options.identity,
                     credentials = *std::move(credentials)]() mutable {
    // With the certificate that is in the files now. If they cannot be read, with the last one.
    if (auto fresh = ChannelCredentialsFor(address, identity); fresh.ok()) credentials = *fresh;
    return grpc::CreateCustomChannel(address.Target(), credentials, arguments);
  };
  const auto version = [identity = options.identity] {
    return identity.has_value() ? ChangeTime(identity->certificate) : 0;
  };
  return std::make_unique<RemoteLink>(options, make, version, PartialDownloads(options),
                                      ProxyTo(address));
}

}  // namespace macaw::wire
