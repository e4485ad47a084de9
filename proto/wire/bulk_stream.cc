#include "proto/wire/bulk_stream.h"

#include <utility>

#include "proto/wire/refusal.h"

namespace macaw::wire {

BulkStream::BulkStream(grpc::GenericStub& stub, const std::string& method,
                       grpc::ClientContext& context, Duration stall)
    : context_(context), stall_(stall) {
  stub.PrepareBidiStreamingCall(&context_, method, {}, this);
  // Writes start outside of a reaction. The hold keeps the call open until they are done.
  AddHold();
  StartRead(&incoming_);
  StartCall();
}

BulkStream::~BulkStream() {
  bool over;
  {
    absl::MutexLock lock(&mutex_);
    over = done_;
  }
  if (!over) Finish().IgnoreError();
}

bool BulkStream::Await(const bool& flag, Duration patience) {
  if (mutex_.AwaitWithTimeout(absl::Condition(&flag), absl::FromChrono(patience))) return true;
  stalled_ = true;
  context_.TryCancel();
  return false;
}

bool BulkStream::Write(grpc::ByteBuffer message) {
  {
    absl::MutexLock lock(&mutex_);
    if (!Await(write_idle_, stall_) || !write_good_) return false;
    write_idle_ = false;
  }
  outgoing_.Swap(&message);
  StartWrite(&outgoing_);
  return true;
}

bool BulkStream::WritesDone() {
  {
    absl::MutexLock lock(&mutex_);
    if (!Await(write_idle_, stall_) || !write_good_) return false;
  }
  StartWritesDone();
  return true;
}

std::optional<grpc::ByteBuffer> BulkStream::Read(Duration patience) {
  {
    absl::MutexLock lock(&mutex_);
    if (!Await(read_ready_, patience) || !read_good_) return std::nullopt;
    read_ready_ = false;
  }
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  StartRead(&incoming_);
  return message;
}

absl::Status BulkStream::Finish() {
  {
    absl::MutexLock lock(&mutex_);
    // When the server ends the call, a read fails, perhaps a little after a failed write. In any
    // other case this side ends the call.
    if (!write_good_) Await(read_ready_, stall_);
    if (!(read_ready_ && !read_good_)) context_.TryCancel();
  }
  RemoveHold();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&done_));  // never waits long: a cancelled call ends at once
  if (stalled_) return absl::DeadlineExceededError("the connection stalled");
  return FromGrpc(status_);
}

void BulkStream::OnReadDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  read_ready_ = true;
  read_good_ = ok;
}

void BulkStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  outgoing_.Clear();
  write_idle_ = true;
  write_good_ = ok;
}

void BulkStream::OnDone(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  status_ = status;
  done_ = true;
}

}  // namespace macaw::wire
