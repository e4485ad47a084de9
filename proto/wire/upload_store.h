#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/executor.h"
#include "core/vector.h"
#include "proto/fleet/messages.h"
#include "proto/wire/partial_files.h"
#include "proto/wire/upload.h"

// Blobs that are being uploaded to the server. Does not use gRPC.
namespace macaw::wire {

// All uploads of a server, by session, purpose and digest. No session sees, hinders or completes an
// upload of another. A session uploads one blob of each purpose at a time, and the handler may hold
// one that it uploaded before. The population is
// offered before there are sessions: its "session" is the caller's own number (CallerNumber in
// service.h; 0: callers without a name share it), and all populations together have a budget of
// their own. A complete blob is held until a request claims it, and afterwards as long as the
// handler keeps it. Begin removes uploads of sessions that have ended, uploads of rounds before the
// newest one, and populations that were not used for `idle`. An upload of a session is idle when
// the session has used none of its uploads for so long. It goes where memory is short: where all
// uploads and the offered blob take more than half of the budget. The offered blob stays. With
// `partials`, uploads of sessions are written to files as they arrive, and the next store with this
// folder continues with them; an idle upload leaves memory in any case, and its file stays.
// Thread-safe.
class UploadStore {
 public:
  struct Options {
    uint64_t max_blob_bytes = 0;
    uint64_t budget_bytes = 0;  // all uploads whose bytes are in memory, claimed ones included
    uint64_t population_budget_bytes = 0;  // the same for uploads outside of sessions
    Duration idle = FromSeconds(60);       // docs/guides/networks.md
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
  // `own`: the offer's.
  void Sweep(const Key& own, const fleet::UploadOffer& newest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool HasFile(const Entry& entry);
  // When the upload was used, or another one of its session.
  TimePoint LastUse(const Key& key, const Upload& upload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
