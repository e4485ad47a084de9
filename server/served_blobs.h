#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/clock.h"
#include "proto/fleet/messages.h"
#include "server/split_model.h"

namespace macaw::server {

// The blobs that workers may download: recent broadcasts and models, and pinned blobs, which stay
// (tables of clients, which many workers refer to; the base of a model with frozen tensors). Beside
// the newest broadcast it keeps kMostBytes of older ones. What is larger is served as long as
// somebody else holds it: an open evaluation its model, a stream what it sends. A model with parts
// is made whole for a worker that asks for it, which is one of release 0.1.0. Thread-safe.
class ServedBlobs {
 public:
  // `split`: of the run's model; null: it has no parts. `first`, `beside`: what the evaluation asks
  // for with which the run begins.
  explicit ServedBlobs(std::optional<fleet::Blob> first,
                       std::shared_ptr<const SplitModel> split = nullptr,
                       std::vector<fleet::Blob> beside = {}, const Clock& clock = SteadyClock())
      : split_(std::move(split)), clock_(clock) {
    if (!beside.empty()) recent_.push_back(std::move(beside));
    if (first.has_value()) recent_.push_back({*std::move(first)});
    if (split_ != nullptr) Pin(split_->base());
  }

  // A model, or the channels of a broadcast.
  void Serve(const std::vector<fleet::Blob>& blobs) ABSL_LOCKS_EXCLUDED(mutex_, joined_mutex_) {
    constexpr auto kDigest = &fleet::Blob::digest;
    if (joined_mutex_.TryLock()) {  // else one is being made, and then it forgets the others
      ForgetJoined();
      joined_mutex_.Unlock();
    }
    absl::MutexLock lock(&mutex_);
    // An evaluated model is often the next broadcast.
    if (!recent_.empty() && std::ranges::equal(recent_.back(), blobs, {}, kDigest, kDigest)) {
      recent_.back() = blobs;  // with their short forms
      return;
    }
    recent_.push_back(blobs);
    std::erase_if(lent_, [](const auto& blob) { return blob.second.bytes.expired(); });
    uint64_t older = 0;
    for (size_t i = recent_.size() - 1; i-- > 0;) older += BytesOf(recent_[i]);
    while (recent_.size() > kRecent || (recent_.size() > 1 && older > kMostBytes)) {
      older -= BytesOf(recent_.front());
      for (const fleet::Blob& blob : recent_.front()) {
        for (const fleet::Blob& piece : PiecesOf(blob))
          lent_.insert_or_assign(piece.digest, Lent::Of(piece));
      }
      recent_.pop_front();
    }
  }

  // Models from which clients of the open round train, instead of those of the round before.
  void ServeOlder(const std::vector<fleet::OlderModel>& older) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    older_.clear();
    for (const fleet::OlderModel& model : older) {
      for (const fleet::Blob& blob : model.broadcast.channels)
        for (fleet::Blob& piece : PiecesOf(blob)) older_.emplace(piece.digest, std::move(piece));
    }
  }

  void Pin(fleet::Blob blob) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    pinned_.insert_or_assign(blob.digest, std::move(blob));
  }

  // Null if the blob is not served, or no longer served.
  std::shared_ptr<const AlignedBuffer> Find(const Digest& digest) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const fleet::Blob found = FindBlob(digest);
    return found.has_parts() ? Joined(found) : found.bytes;
  }

  static constexpr size_t kRecent = 4;  // broadcasts, enough for slow downloads of older ones
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  // Whole models that were made of parts stay for some seconds, since one is made on the thread of
  // the call: a caller that asks for one version after another and reads none costs few of them.
  static constexpr Duration kJoinedFor = std::chrono::seconds(10);
  static constexpr size_t kMostJoined = 8;

 private:
  static constexpr size_t kJoined = 2;  // that stay beyond that

  // A blob that others may hold. One with parts is held by what is trained of it.
  struct Lent {
    std::weak_ptr<const AlignedBuffer> bytes;
    Digest trained = {};  // zero: the blob has no parts
    uint64_t size = 0;    // of a blob with parts

    static Lent Of(const fleet::Blob& blob) {
      if (!blob.has_parts()) return {.bytes = blob.bytes};
      return {.bytes = blob.trained().bytes, .trained = blob.trained().digest, .size = blob.size};
    }
  };

  // The blob, its short forms, and what is trained of one with parts (its base is pinned).
  static std::vector<fleet::Blob> PiecesOf(const fleet::Blob& blob) {
    std::vector<fleet::Blob> pieces = {blob};
    for (const fleet::CompactForm& form : blob.compact)
      pieces.push_back({form.digest, form.size, form.bytes});
    if (blob.has_parts()) std::ranges::move(PiecesOf(blob.trained()), std::back_inserter(pieces));
    return pieces;
  }

  // That is in memory.
  static uint64_t BytesOf(const std::vector<fleet::Blob>& blobs) {
    uint64_t bytes = 0;
    for (const fleet::Blob& blob : blobs) {
      for (const fleet::Blob& piece : PiecesOf(blob)) bytes += piece.has_parts() ? 0 : piece.size;
    }
    return bytes;
  }

  // Without bytes and parts: it is not served.
  fleet::Blob FindBlob(const Digest& digest) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (const auto it = pinned_.find(digest); it != pinned_.end()) return it->second;
    if (const auto it = older_.find(digest); it != older_.end()) return it->second;
    for (const std::vector<fleet::Blob>& blobs : recent_) {
      for (const fleet::Blob& blob : blobs) {
        for (fleet::Blob& piece : PiecesOf(blob)) {
          if (piece.digest == digest) return std::move(piece);
        }
      }
    }
    fleet::Blob found;
    if (const auto lent = lent_.find(digest); lent != lent_.end()) {
      std::shared_ptr<const AlignedBuffer> bytes = lent->second.bytes.lock();
      if (bytes == nullptr || lent->second.trained.IsZero()) {
        found.bytes = std::move(bytes);
        return found;
      }
      const uint64_t size = bytes->size();
      found = {.digest = digest, .size = lent->second.size};
      found.parts = {{lent->second.trained, size, std::move(bytes)}, split_->base()};
    }
    return found;
  }

  std::shared_ptr<const AlignedBuffer> Joined(const fleet::Blob& whole) const
      ABSL_LOCKS_EXCLUDED(joined_mutex_) {
    absl::MutexLock lock(&joined_mutex_);  // it is made once for those who ask meanwhile
    std::erase_if(made_, [](const auto& made) { return made.second.expired(); });
    const auto known = made_.find(whole.digest);
    if (known != made_.end()) {
      if (auto bytes = known->second.lock(); bytes != nullptr) return bytes;
    }
    auto bytes =
        std::make_shared<const AlignedBuffer>(split_->Encode(whole.trained().bytes->bytes()));
    made_.insert_or_assign(whole.digest, bytes);
    joined_.push_back({clock_.Now(), bytes});
    ForgetJoined();
    return bytes;
  }
  void ForgetJoined() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(joined_mutex_) {
    const TimePoint before = clock_.Now() - kJoinedFor;
    while (joined_.size() > kMostJoined ||
           (joined_.size() > kJoined && joined_.front().made < before))
      joined_.pop_front();
  }

  struct WholeModel {
    TimePoint made;
    std::shared_ptr<const AlignedBuffer> bytes;
  };

  const std::shared_ptr<const SplitModel> split_;
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  std::deque<std::vector<fleet::Blob>> recent_ ABSL_GUARDED_BY(mutex_);
  // Those of ServeOlder, with what is trained of them and their short forms.
  absl::flat_hash_map<Digest, fleet::Blob> older_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, fleet::Blob> pinned_ ABSL_GUARDED_BY(mutex_);
  // What was recent, while others hold it.
  std::map<Digest, Lent> lent_ ABSL_GUARDED_BY(mutex_);
  mutable absl::Mutex joined_mutex_;
  // The newest that were made, and all that somebody still holds: a caller that asks for one after
  // another and reads none does not have each made again and again.
  mutable std::deque<WholeModel> joined_ ABSL_GUARDED_BY(joined_mutex_);
  mutable std::map<Digest, std::weak_ptr<const AlignedBuffer>> made_ ABSL_GUARDED_BY(joined_mutex_);
};

}  // namespace macaw::server
