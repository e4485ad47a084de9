#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/executor.h"
#include "core/mutex.h"
#include "core/vector.h"
#include "proto/fleet/messages.h"

// Blobs on their way into the server. No gRPC here.
namespace macaw::wire {

// One blob that arrives chunk by chunk, from one stream after another or from several at once (they
// bring the same bytes, since its name is their digest). What has been kept is never written again,
// so it is hashed on the executor while the rest is still coming. Thread-safe; lives as long as
// somebody holds it.
class Upload : public std::enable_shared_from_this<Upload> {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  // `size` bytes are taken from `*used` until the last holder lets go, so that the store's budget
  // counts real memory. `verify`: hash the bytes against the digest.
  Upload(const Digest& digest, uint64_t size, bool verify,
         std::shared_ptr<std::atomic<uint64_t>> used, const Clock& clock, Executor& executor);
  // One that is here already, in its sender's memory.
  Upload(const Digest& digest, std::shared_ptr<const AlignedBuffer> mapped,
         std::shared_ptr<std::atomic<uint64_t>> used, const Clock& clock, Executor& executor);
  ~Upload();

  uint64_t size() const { return size_; }
  uint64_t received() const ABSL_LOCKS_EXCLUDED(mutex_);
  // All there, and the digest is right where it is verified.
  bool complete() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool failed() const ABSL_LOCKS_EXCLUDED(mutex_);  // all there, and the digest is wrong
  TimePoint last_used() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Keeps a chunk that begins at or before what is kept; the part that is kept already is skipped.
  // On REASON_CHECKSUM and REASON_OFFSET everything before stays.
  absl::Status Append(uint64_t offset, uint64_t checksum,
                      std::span<const std::span<const std::byte>> data) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `done` when the last byte has been hashed (perhaps before returning): OK or
  // REASON_DIGEST_MISMATCH.
  void WhenComplete(Done done) ABSL_LOCKS_EXCLUDED(mutex_);

  // The bytes, once complete; they keep the whole upload alive.
  std::shared_ptr<const AlignedBuffer> bytes();

 private:
  enum class State { kReceiving, kComplete, kFailed };
  void HashSome() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Outcome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Digest digest_;
  const uint64_t size_;
  const bool verify_;
  const std::shared_ptr<std::atomic<uint64_t>> used_;
  const Clock& clock_;
  Executor& executor_;
  const std::shared_ptr<const AlignedBuffer> mapped_;  // or null, and:
  AlignedBuffer buffer_;  // [0, received_) is constant, the rest belongs to Append
  Digester digester_;     // the hashing task's alone

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kReceiving;
  uint64_t received_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t hashed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hashing_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint last_used_ ABSL_GUARDED_BY(mutex_);
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);
};

// All uploads of a server, by digest. A complete one is held until a request has claimed it,
// afterwards for as long as the handler keeps it; one that nobody touches for `idle` is dropped.
// Thread-safe.
class UploadStore {
 public:
  struct Options {
    uint64_t max_blob_bytes = 0;
    uint64_t budget_bytes = 0;  // all uploads whose bytes are in memory, claimed ones included
    Duration idle = FromSeconds(60);
    // Whether digests are checked on arrival. Every chunk has its checksum either way.
    bool verify = true;
  };
  // `clock` and `executor` must outlive the store and every blob that it has given out.
  UploadStore(const Options& options, const Clock& clock, Executor& executor);

  struct Begun {
    fleet::UploadVerdict verdict = fleet::UploadVerdict::kBusy;  // kSend, kHave, kTooLarge or kBusy
    uint64_t offset = 0;
  };
  // Sets memory aside, once however many ask for the same blob; unless its bytes are `mapped`
  // already, which makes it complete.
  Begun Begin(const Digest& digest, uint64_t size,
              std::shared_ptr<const AlignedBuffer> mapped = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  // Begun and not dropped, or null.
  std::shared_ptr<Upload> Find(const Digest& digest) ABSL_LOCKS_EXCLUDED(mutex_);
  // A complete blob, or null.
  std::shared_ptr<const AlignedBuffer> Get(const Digest& digest) ABSL_LOCKS_EXCLUDED(mutex_);
  // From here on the blob lives only as long as its users.
  void Claim(const Digest& digest) ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t used_bytes() const { return used_->load(); }

 private:
  void DropIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Upload> FindLocked(const Digest& digest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock& clock_;
  Executor& executor_;
  const std::shared_ptr<std::atomic<uint64_t>> used_ = std::make_shared<std::atomic<uint64_t>>(0);

  Mutex mutex_;
  absl::flat_hash_map<Digest, std::shared_ptr<Upload>> held_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, std::weak_ptr<Upload>> claimed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
