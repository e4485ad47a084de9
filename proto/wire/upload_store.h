#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/blob_digest.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/executor.h"
#include "core/passed_bytes.h"
#include "core/vector.h"
#include "proto/fleet/messages.h"
#include "proto/wire/partial_files.h"

// Blobs that are being uploaded to the server. Does not use gRPC.
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

// All uploads of a server, by session, purpose and digest. No session sees, hinders or completes an
// upload of another. A session uploads one blob of each purpose at a time, and the handler may hold
// one that it uploaded before. The population is
// offered before there are sessions: its "session" is the caller's own number (CallerNumber in
// service.h; 0: callers without a name share it), and all populations together have a budget of
// their own. A complete blob is held until a request claims it, and afterwards as long as the
// handler keeps it. Begin removes uploads that were not used for `idle`, uploads of sessions that
// have ended, and uploads of rounds before the newest one. With `partials`, uploads of sessions are
// written to files as they arrive, and the next store with this folder continues with them; an
// upload that was not used for `idle` leaves memory, and its file stays. Thread-safe.
class UploadStore {
 public:
  struct Options {
    uint64_t max_blob_bytes = 0;
    uint64_t budget_bytes = 0;  // all uploads whose bytes are in memory, claimed ones included
    uint64_t population_budget_bytes = 0;  // the same for uploads outside of sessions
    Duration idle = FromSeconds(60);
    // Whether digests are checked on arrival. The digest of the population is always checked, since
    // many callers share it once it is complete. The checksum of a chunk is always checked, too.
    bool verify = true;
  };
  // `open` says whether a session is open. `open`, `clock` and `executor` must outlive the store.
  UploadStore(const Options& options, std::function<bool(SessionId)> open, const Clock& clock,
              Executor& executor, std::unique_ptr<PartialFiles> partials = nullptr);
  ~UploadStore() { Close(); }
  // Finishes the files and gives up all uploads that were not claimed. Nothing may begin later.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Begun {
    fleet::UploadVerdict verdict = fleet::UploadVerdict::kBusy;  // kSend, kHave, kTooLarge or kBusy
    uint64_t offset = 0;
  };
  // Reserves memory, once even if the same blob is offered again. If its bytes are `mapped`, no
  // memory is reserved and the upload is complete. The session's former upload of this purpose is
  // dropped; while the handler holds two of them, the answer is kBusy.
  Begun Begin(const fleet::UploadOffer& offer,
              std::shared_ptr<const AlignedBuffer> mapped = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);
  // The upload that was begun in this session and not dropped, or null.
  std::shared_ptr<Upload> Find(SessionId session, const Digest& digest) ABSL_LOCKS_EXCLUDED(mutex_);
  // A complete blob of this session and purpose, or null.
  std::shared_ptr<const AlignedBuffer> Get(SessionId session, fleet::BlobPurpose purpose,
                                           const Digest& digest) ABSL_LOCKS_EXCLUDED(mutex_);
  // The store gives up the blob, which then lives only as long as its users hold it.
  void Claim(SessionId session, fleet::BlobPurpose purpose, const Digest& digest)
      ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t used_bytes() const { return used_->load(); }

 private:
  using Key = std::tuple<SessionId, fleet::BlobPurpose, Digest>;
  struct Entry {
    Round round{};
    std::shared_ptr<Upload> upload;      // null once claimed or dropped
    std::weak_ptr<UploadMemory> memory;  // not expired: still in use
  };
  using Entries = std::map<Key, Entry>;

  static bool Gone(const Entry& entry) { return entry.upload == nullptr && entry.memory.expired(); }
  static void Drop(Entry& entry);
  void Sweep(const fleet::UploadOffer& newest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the upload, unless the answer is another than kSend.
  Begun BeginLocked(const fleet::UploadOffer& offer, std::shared_ptr<const AlignedBuffer> mapped,
                    std::shared_ptr<Upload>& made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The entries of one session and purpose.
  std::pair<Entries::iterator, Entries::iterator> Of(SessionId session, fleet::BlobPurpose purpose)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops other uploads if that is needed. Returns whether there is room for this one.
  bool MakeRoom(const fleet::UploadOffer& offer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::function<bool(SessionId)> open_;
  const Clock& clock_;
  Executor& executor_;
  const std::shared_ptr<std::atomic<uint64_t>> used_ = std::make_shared<std::atomic<uint64_t>>(0);
  const std::unique_ptr<PartialFiles> partials_;  // may be null

  absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  std::optional<Executor> writer_;  // of the files
};

}  // namespace macaw::wire
