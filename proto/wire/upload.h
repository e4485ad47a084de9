#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/blob_digest.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/executor.h"
#include "core/passed_bytes.h"
#include "core/vector.h"
#include "proto/wire/partial_files.h"

// One blob that is being uploaded to the server. Does not use gRPC.
namespace macaw::wire {

// The bytes of a blob. They count against the budget until the last holder releases them, so that
// the budget counts real memory. Then the file with the beginning of the blob goes, too: by that
// time a part that counts is in the journal.
struct UploadMemory {
  UploadMemory(AlignedBuffer own, std::shared_ptr<const AlignedBuffer> lent,
               std::shared_ptr<std::atomic<uint64_t>> counter)
      : buffer(std::move(own)), mapped(std::move(lent)), used(std::move(counter)) {}
  ~UploadMemory() {
    if (file != nullptr) file->Discard();
    used->fetch_sub(bytes().size());
  }
  UploadMemory(const UploadMemory&) = delete;
  UploadMemory& operator=(const UploadMemory&) = delete;
  const AlignedBuffer& bytes() const { return mapped != nullptr ? *mapped : buffer; }

  AlignedBuffer buffer;  // empty when the sender's memory is mapped:
  const std::shared_ptr<const AlignedBuffer> mapped;
  const std::shared_ptr<std::atomic<uint64_t>> used;
  std::shared_ptr<PartialFile> file;  // the same bytes on disk; may be null
};

// One blob that arrives in chunks, over one stream after another or over several at once (all bring
// the same bytes, since the digest names them). Stored bytes are never written again, so the
// executor hashes them while the rest arrives. Thread-safe.
class Upload : public std::enable_shared_from_this<Upload> {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  // `verify`: check the bytes against the digest. Mapped memory is complete from the start. With a
  // file, nothing is taken before Load.
  Upload(const Digest& digest, std::shared_ptr<UploadMemory> memory, bool verify,
         const Clock& clock, Executor& executor);

  // Begins with the bytes that are in the file. What arrives later is added to the file by tasks of
  // `writer`, which must outlive them. Call this once, if there is a file.
  void Load(Executor& writer) ABSL_LOCKS_EXCLUDED(mutex_);
  bool loaded() const ABSL_LOCKS_EXCLUDED(mutex_);  // or there is no file

  uint64_t size() const { return size_; }
  uint64_t received() const ABSL_LOCKS_EXCLUDED(mutex_);
  // All bytes have arrived, and the digest matches if it is verified.
  bool complete() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool failed() const ABSL_LOCKS_EXCLUDED(mutex_);  // the digest is wrong, or it was dropped
  TimePoint last_used() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Touch() ABSL_LOCKS_EXCLUDED(mutex_);  // it is used now

  // Stores a chunk that begins at or before the end of the stored bytes; bytes that are already
  // stored are skipped. After REASON_CHECKSUM or REASON_OFFSET all earlier bytes are kept.
  absl::Status Append(uint64_t offset, uint64_t checksum,
                      std::span<const std::span<const std::byte>> data) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `done` when the last byte has been hashed (perhaps before this returns): with OK,
  // REASON_DIGEST_MISMATCH, or REASON_NOT_BEGUN when the upload was dropped.
  void WhenComplete(Done done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Releases the bytes. Others that hold the bytes keep them; others that hold this object do not.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, but the file stays.
  void Park() ABSL_LOCKS_EXCLUDED(mutex_);

  // The bytes, once complete; else null.
  std::shared_ptr<const AlignedBuffer> bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State { kLoading, kReceiving, kComplete, kFailed, kDropped };
  void HashSome() ABSL_LOCKS_EXCLUDED(mutex_);
  void WriteSome() ABSL_LOCKS_EXCLUDED(mutex_);
  // What has to be posted now that more bytes have arrived.
  struct Due {
    bool hashing = false, writing = false;
  };
  Due MoreArrived() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Post(Due due) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Outcome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Digest digest_;
  const uint64_t size_;
  const bool verify_;
  const Clock& clock_;
  Executor& executor_;
  BlobDigester digester_;  // used by the hashing task alone
  PassedBytes hashed_;     // the same

  mutable absl::Mutex mutex_;
  // Bytes [0, received_) are constant; only Append writes the rest. Null once dropped.
  std::shared_ptr<UploadMemory> memory_ ABSL_GUARDED_BY(mutex_);
  State state_ ABSL_GUARDED_BY(mutex_) = State::kReceiving;
  uint64_t received_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t wanted_ ABSL_GUARDED_BY(mutex_);  // digester_.wanted()
  bool hashing_ ABSL_GUARDED_BY(mutex_) = false;
  Executor* writer_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null until Load
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;        // bytes in the file
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint last_used_ ABSL_GUARDED_BY(mutex_);
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
