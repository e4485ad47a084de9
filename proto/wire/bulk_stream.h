#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"

namespace macaw::wire {

// The client's end of Download and Upload: raw messages, blocking, with a limit on how long nothing
// may move. One write and one read are always under way, so the caller's work on a chunk overlaps
// the network's on the next. One thread uses it; the context may be cancelled from any.
class BulkStream final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Starts the call. `context` carries the deadline and must outlive the stream.
  BulkStream(grpc::GenericStub& stub, const std::string& method, grpc::ClientContext& context,
             Duration stall);
  ~BulkStream() override;  // cancels what is still open, and waits

  // Hands over a message, waiting for the one before to leave. False: the call is over, Finish says
  // why.
  bool Write(grpc::ByteBuffer message) ABSL_LOCKS_EXCLUDED(mutex_);
  bool WritesDone() ABSL_LOCKS_EXCLUDED(mutex_);
  // The next message; nothing: the call is over, Finish says why.
  std::optional<grpc::ByteBuffer> Read() ABSL_LOCKS_EXCLUDED(mutex_) { return Read(stall_); }
  std::optional<grpc::ByteBuffer> Read(Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);
  // How the call ended; kDeadlineExceeded when it stalled. Ends it if it has not.
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWritesDoneDone(bool) override {}
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the flag is set; false, and the call cancelled, when that takes too long.
  bool Await(const bool& flag, Duration patience) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ClientContext& context_;
  const Duration stall_;

  absl::Mutex mutex_;
  grpc::ByteBuffer outgoing_;  // gRPC's while !write_idle_
  grpc::ByteBuffer incoming_;  // gRPC's while !read_ready_
  bool write_idle_ ABSL_GUARDED_BY(mutex_) = true;
  bool write_good_ ABSL_GUARDED_BY(mutex_) = true;
  bool read_ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_good_ ABSL_GUARDED_BY(mutex_) = true;
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
