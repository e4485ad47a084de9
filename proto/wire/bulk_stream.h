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

// The client's end of Download and Upload: raw messages, blocking calls, and a limit on the time
// without progress. One write and one read are always in flight, so the caller works on one chunk
// while the network moves the next. One thread uses the stream; any thread may cancel the context.
class BulkStream final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Starts the call. `context` carries the deadline and must outlive the stream.
  BulkStream(grpc::GenericStub& stub, const std::string& method, grpc::ClientContext& context,
             Duration stall);
  ~BulkStream() override;  // cancels the call if it is still open, and waits for its end

  // Sends a message, after waiting until the previous one is sent. False: the call has ended, and
  // Finish says why.
  bool Write(grpc::ByteBuffer message) ABSL_LOCKS_EXCLUDED(mutex_);
  bool WritesDone() ABSL_LOCKS_EXCLUDED(mutex_);
  // The next message; nullopt: the call has ended, and Finish says why.
  std::optional<grpc::ByteBuffer> Read() ABSL_LOCKS_EXCLUDED(mutex_) { return Read(stall_); }
  std::optional<grpc::ByteBuffer> Read(Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the call if it is still open. Returns its status: kDeadlineExceeded if it stalled.
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWritesDoneDone(bool) override {}
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until the flag is set. If that takes longer than `patience`, cancels the call and returns
  // false.
  bool Await(const bool& flag, Duration patience) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ClientContext& context_;
  const Duration stall_;

  absl::Mutex mutex_;
  grpc::ByteBuffer outgoing_;  // owned by gRPC while !write_idle_
  grpc::ByteBuffer incoming_;  // owned by gRPC while !read_ready_
  bool write_idle_ ABSL_GUARDED_BY(mutex_) = true;
  bool write_good_ ABSL_GUARDED_BY(mutex_) = true;
  bool read_ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_good_ ABSL_GUARDED_BY(mutex_) = true;
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
