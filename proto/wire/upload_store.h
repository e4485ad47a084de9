#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/executor.h"
#include "core/vector.h"
#include "proto/fleet/messages.h"

// Blobs on their way into the server. No gRPC here.
namespace macaw::wire {

// The bytes of a blob. They count as used until the last holder lets go, so that a budget counts
// real memory.
struct UploadMemory {
  UploadMemory(AlignedBuffer own, std::shared_ptr<const AlignedBuffer> lent,
               std::shared_ptr<std::atomic<uint64_t>> counter)
      : buffer(std::move(own)), mapped(std::move(lent)), used(std::move(counter)) {}
  ~UploadMemory() { used->fetch_sub(bytes().size()); }
  UploadMemory(const UploadMemory&) = delete;
  UploadMemory& operator=(const UploadMemory&) = delete;
  const AlignedBuffer& bytes() const { return mapped != nullptr ? *mapped : buffer; }

  AlignedBuffer buffer;  // empty where its sender's memory is:
  const std::shared_ptr<const AlignedBuffer> mapped;
  const std::shared_ptr<std::atomic<uint64_t>> used;
};

// One blob that arrives chunk by chunk, from one stream after another or from several at once (they
// bring the same bytes, since its name is their digest). What has been kept is never written again,
// so it is hashed on the executor while the rest is still coming. Thread-safe.
class Upload : public std::enable_shared_from_this<Upload> {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  // `verify`: hash the bytes against the digest. Mapped memory is complete from the start.
  Upload(const Digest& digest, std::shared_ptr<UploadMemory> memory, bool verify,
         const Clock& clock, Executor& executor);

  uint64_t size() const { return size_; }
  uint64_t received() const ABSL_LOCKS_EXCLUDED(mutex_);
  // All there, and the digest is right where it is verified.
  bool complete() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool failed() const ABSL_LOCKS_EXCLUDED(mutex_);  // the digest is wrong, or it was dropped
  TimePoint last_used() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Keeps a chunk that begins at or before what is kept; the part that is kept already is skipped.
  // On REASON_CHECKSUM and REASON_OFFSET everything before stays.
  absl::Status Append(uint64_t offset, uint64_t checksum,
                      std::span<const std::span<const std::byte>> data) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `done` when the last byte has been hashed (perhaps before returning): OK,
  // REASON_DIGEST_MISMATCH, or REASON_NOT_BEGUN when it was dropped.
  void WhenComplete(Done done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Lets go of the bytes, whoever still holds this object; who holds them keeps them.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

  // The bytes, once complete; else null.
  std::shared_ptr<const AlignedBuffer> bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State { kReceiving, kComplete, kFailed, kDropped };
  void HashSome() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Outcome() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Digest digest_;
  const uint64_t size_;
  const bool verify_;
  const Clock& clock_;
  Executor& executor_;
  Digester digester_;  // the hashing task's alone

  mutable absl::Mutex mutex_;
  // [0, received_) is constant, the rest belongs to Append. Null once dropped.
  std::shared_ptr<UploadMemory> memory_ ABSL_GUARDED_BY(mutex_);
  State state_ ABSL_GUARDED_BY(mutex_) = State::kReceiving;
  uint64_t received_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t hashed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hashing_ ABSL_GUARDED_BY(mutex_) = false;
  TimePoint last_used_ ABSL_GUARDED_BY(mutex_);
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);
};

// All uploads of a server, by session, purpose and digest: nobody sees, hinders or completes what
// another session brings. A session has one upload of each purpose in memory. The population is
// offered before there are sessions; such uploads share a budget of their own, by digest. What is
// complete is held until a request has claimed it, afterwards for as long as the handler keeps it.
// What goes by itself, at the next Begin: uploads that nobody touches for `idle`, those of sessions
// that have ended, and those of rounds before that of the newest. Thread-safe.
class UploadStore {
 public:
  struct Options {
    uint64_t max_blob_bytes = 0;
    uint64_t budget_bytes = 0;  // all uploads whose bytes are in memory, claimed ones included
    uint64_t population_budget_bytes = 0;  // likewise, of those outside of sessions
    Duration idle = FromSeconds(60);
    // Whether digests are checked on arrival. The population's always is, since many callers share
    // it, and every chunk has its checksum either way.
    bool verify = true;
  };
  // `open` says whether a session is; it, `clock` and `executor` must outlive the store.
  UploadStore(const Options& options, std::function<bool(SessionId)> open, const Clock& clock,
              Executor& executor);

  struct Begun {
    fleet::UploadVerdict verdict = fleet::UploadVerdict::kBusy;  // kSend, kHave, kTooLarge or kBusy
    uint64_t offset = 0;
  };
  // Sets memory aside, once however often the same blob is offered; unless its bytes are `mapped`
  // already, which makes it complete. A session's former upload of this purpose is dropped; while
  // the handler works on one, it is busy.
  Begun Begin(const fleet::UploadOffer& offer,
              std::shared_ptr<const AlignedBuffer> mapped = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  // Begun in this session and not dropped, or null.
  std::shared_ptr<Upload> Find(SessionId session, const Digest& digest) ABSL_LOCKS_EXCLUDED(mutex_);
  // A complete blob of this session and purpose, or null.
  std::shared_ptr<const AlignedBuffer> Get(SessionId session, fleet::BlobPurpose purpose,
                                           const Digest& digest) ABSL_LOCKS_EXCLUDED(mutex_);
  // From here on the blob lives only as long as its users.
  void Claim(SessionId session, fleet::BlobPurpose purpose, const Digest& digest)
      ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t used_bytes() const { return used_->load(); }

 private:
  using Key = std::tuple<SessionId, fleet::BlobPurpose, Digest>;
  struct Entry {
    Round round{};
    std::shared_ptr<Upload> upload;      // null once claimed or dropped
    std::weak_ptr<UploadMemory> memory;  // somebody may still use it
  };
  using Entries = std::map<Key, Entry>;

  static bool Gone(const Entry& entry) { return entry.upload == nullptr && entry.memory.expired(); }
  static void Drop(Entry& entry);
  void Sweep(Round newest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those of one session and purpose.
  std::pair<Entries::iterator, Entries::iterator> Of(SessionId session, fleet::BlobPurpose purpose)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether there is room for this one, after others have made way for it.
  bool MakeRoom(const fleet::UploadOffer& offer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::function<bool(SessionId)> open_;
  const Clock& clock_;
  Executor& executor_;
  const std::shared_ptr<std::atomic<uint64_t>> used_ = std::make_shared<std::atomic<uint64_t>>(0);

  absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::wire
