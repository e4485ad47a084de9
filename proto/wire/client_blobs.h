#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "core/work_counter.h"
#include "proto/wire/connection.h"
#include "proto/wire/convert.h"
#include "proto/wire/remote.h"

namespace macaw::wire {

// The calls that are open, so that Shutdown can cancel them all. Thread-safe.
class OpenCalls {
 public:
  explicit OpenCalls(std::string token) : token_(std::move(token)) {}

  // A ClientContext with a deadline and the caller's token, known here while it lives.
  class Scope {
   public:
    Scope(OpenCalls& calls, Duration timeout);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    grpc::ClientContext& context() { return context_; }
    // The call's status as the API promises it: kCancelled after Shutdown and never otherwise.
    absl::Status Explain(absl::Status status) const;

   private:
    OpenCalls& calls_;
    grpc::ClientContext context_;
  };

  void CancelAll() ABSL_LOCKS_EXCLUDED(mutex_);  // and everything that begins later
  bool shut() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits; false when shut down meanwhile.
  bool Pause(Duration time) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string token_;
  mutable absl::Mutex mutex_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> open_ ABSL_GUARDED_BY(mutex_);
};

// Moves blobs in chunks, going on where a broken stream had come to. Thread-safe.
class BlobMover {
 public:
  // `connection` and `calls` must outlive it.
  BlobMover(Connection& connection, const ClientOptions& options, OpenCalls& calls);

  using Ask = absl::FunctionRef<absl::StatusOr<UploadAnswer>()>;  // BeginUpload
  // Brings the blob that `ask` offers in this session to the server unless it has it or will not
  // have it: kHave (it is there now),
  // kNotNeeded, kStale or kTooLarge. kUnavailable when the server stays busy or the connection
  // keeps breaking without progress.
  absl::StatusOr<fleet::UploadVerdict> Upload(const fleet::Blob& blob, SessionId session, Ask ask);
  // kNotFound when the server no longer serves it, kDataLoss when the bytes are not what the digest
  // names (not asked of a private socket).
  absl::StatusOr<fleet::Blob> Download(const Digest& digest, uint64_t size);
  uint64_t moved() const { return chunks_.done(); }  // chunks, both ways

 private:
  absl::StatusOr<uint64_t> UploadFrom(const fleet::Blob& blob, SessionId session, uint64_t offset);
  absl::Status DownloadFrom(const Digest& digest, AlignedBuffer& buffer, uint64_t& offset,
                            Digester& digester);
  Duration DeadlineFor(uint64_t bytes) const;

  Connection& connection_;
  const ClientOptions options_;
  const bool verify_;  // downloads, against their digest
  OpenCalls& calls_;
  WorkCounter chunks_;
};

}  // namespace macaw::wire
