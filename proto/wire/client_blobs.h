#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <optional>
#include <set>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "core/blob_digest.h"
#include "core/passed_bytes.h"
#include "core/pause.h"
#include "core/work_counter.h"
#include "proto/wire/connection.h"
#include "proto/wire/convert.h"
#include "proto/wire/limits.h"
#include "proto/wire/link_pace.h"
#include "proto/wire/partial_files.h"
#include "proto/wire/proxy.h"
#include "proto/wire/rate_limit.h"
#include "proto/wire/remote.h"

namespace macaw::wire {

// The calls that are open, so that Shutdown can cancel them all. Thread-safe.
class OpenCalls {
 public:
  // `proxy`: on the way to the server, for messages.
  explicit OpenCalls(std::string token, std::optional<Proxy> proxy = std::nullopt)
      : token_(std::move(token)), proxy_(std::move(proxy)) {}

  // A ClientContext with a deadline and the caller's token. OpenCalls knows the context while the
  // Scope lives.
  class Scope {
   public:
    explicit Scope(OpenCalls& calls);  // without a deadline
    Scope(OpenCalls& calls, Duration timeout);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    grpc::ClientContext& context() { return context_; }
    // The call's status as the API promises it: kCancelled after Shutdown, and only then.
    absl::Status Explain(absl::Status status) const;

   private:
    OpenCalls& calls_;
    grpc::ClientContext context_;
  };

  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);  // also every call that begins later
  bool shut() const { return shut_.stop_requested(); }
  // Waits for `time`. False if CancelAll was called meanwhile.
  bool Pause(Duration time) const { return !PauseUnlessStopped(shut_.get_token(), time); }

 private:
  const std::string token_;
  const std::optional<Proxy> proxy_;
  mutable absl::Mutex mutex_;
  std::stop_source shut_;
  std::set<grpc::ClientContext*> open_ ABSL_GUARDED_BY(mutex_);
};

// Counts bytes in both directions. Thread-safe.
class TrafficCounter {
 public:
  void CountUp(uint64_t bytes) { up_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountDown(uint64_t bytes) { down_.fetch_add(bytes, std::memory_order_relaxed); }
  fleet::Traffic total() const {
    return {.up = up_.load(std::memory_order_relaxed),
            .down = down_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<uint64_t> up_ = 0, down_ = 0;
};

// Moves blobs in chunks, in slices that fit the speed of the connection. After a broken stream it
// resumes where that stream stopped. There is no limit on the time of a transfer, only on the time
// without progress. With `partials`, downloads are written to files as they arrive, and continue
// with them after a restart. Thread-safe.
class BlobMover {
 public:
  // What is passed by reference must outlive it. `partials` may be null.
  BlobMover(Connection& connection, const ClientOptions& options, OpenCalls& calls,
            TrafficCounter& traffic, std::unique_ptr<PartialFiles> partials);

  using Ask = absl::FunctionRef<absl::StatusOr<fleet::UploadAnswer>()>;  // BeginUpload
  // Uploads the blob that `ask` offers in this session, if the server wants it. kHave: the server
  // has the blob now. kNotNeeded, kStale, kTooLarge: the server does not want it. kUnavailable: the
  // server stays busy, or the connection keeps breaking without progress.
  absl::StatusOr<fleet::UploadVerdict> Upload(const fleet::Blob& blob, SessionId session, Ask ask);
  // kNotFound when the server no longer serves the blob. kDataLoss when the bytes do not match the
  // digest, which is not checked over a private socket.
  absl::StatusOr<fleet::Blob> Download(const Digest& digest, uint64_t size);
  // Makes a small call if none has been answered over the present connection. If it fails, the call
  // that follows tells why.
  void Introduce(Connection::Line& line);
  uint64_t moved() const { return chunks_.done(); }  // chunks, both ways
  // How many bytes a message may hold: what this connection moves in some seconds.
  uint64_t most_inside() const {
    return private_ ? kMaxInlineBytes : up_limit_.AtOnce(up_.slice());
  }
  // Waits until a message of this size may be sent. False after Shutdown.
  bool AwaitTurn(uint64_t bytes);
  // A message was sent, and this was its answer.
  void Count(uint64_t sent, uint64_t received) {
    up_limit_.Count(sent);
    down_limit_.Count(received);
  }
  // A message with bytes inside got no answer.
  void MessageLost() { up_.Failed(); }

 private:
  // One slice, or all of the blob over a private socket. `at` is what the server has stored; raised
  // by what it says that it has stored now.
  absl::Status UploadSlice(const fleet::Blob& blob, SessionId session, uint64_t& at);
  // Slices from `at` on, until the server has the whole blob.
  absl::Status UploadFrom(const fleet::Blob& blob, SessionId session, uint64_t& at);
  // A blob that is being downloaded.
  struct Incoming {
    const Digest digest;
    AlignedBuffer buffer;
    BlobDigester digester;
    uint64_t offset = 0;                // bytes that are here
    std::shared_ptr<PartialFile> file;  // may be null
    PassedBytes passed{std::as_const(buffer).bytes()};

    void Hash();  // as much as is here
  };
  // The beginning is the file's, if there is one.
  absl::StatusOr<Incoming> Begin(const Digest& digest, uint64_t size);
  // Slices until the blob is complete.
  absl::Status Complete(Incoming& blob);
  absl::Status DownloadSlice(Incoming& blob);

  Connection& connection_;
  const ClientOptions options_;
  // On a private socket everything moves at once, and downloads are not checked against their
  // digest.
  const bool private_;
  OpenCalls& calls_;
  TrafficCounter& traffic_;
  LinkPace up_, down_;
  RateLimit up_limit_, down_limit_;
  const std::unique_ptr<PartialFiles> partials_;  // may be null
  WorkCounter chunks_;
};

}  // namespace macaw::wire
