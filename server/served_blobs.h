#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proto/fleet/messages.h"

namespace macaw::server {

// The blobs that workers may download: recent broadcasts and models, and pinned blobs, which stay
// (tables of clients, which many workers refer to). Beside the newest broadcast it keeps kMostBytes
// of older ones. What is larger is served as long as somebody else holds it: an open evaluation its
// model, a stream what it sends. Thread-safe.
class ServedBlobs {
 public:
  // What the evaluation asks for with which the run begins.
  explicit ServedBlobs(std::optional<fleet::Blob> first, std::vector<fleet::Blob> beside = {}) {
    if (!beside.empty()) recent_.push_back(std::move(beside));
    if (first.has_value()) recent_.push_back({*std::move(first)});
  }

  // A model, or the channels of a broadcast.
  void Serve(const std::vector<fleet::Blob>& blobs) ABSL_LOCKS_EXCLUDED(mutex_) {
    constexpr auto kDigest = &fleet::Blob::digest;
    absl::MutexLock lock(&mutex_);
    // An evaluated model is often the next broadcast.
    if (!recent_.empty() && std::ranges::equal(recent_.back(), blobs, {}, kDigest, kDigest)) {
      recent_.back() = blobs;  // with their short forms
      return;
    }
    recent_.push_back(blobs);
    std::erase_if(lent_, [](const auto& blob) { return blob.second.expired(); });
    uint64_t older = 0;
    for (size_t i = recent_.size() - 1; i-- > 0;) older += BytesOf(recent_[i]);
    while (recent_.size() > kRecent || (recent_.size() > 1 && older > kMostBytes)) {
      older -= BytesOf(recent_.front());
      for (const fleet::Blob& blob : recent_.front()) {
        lent_.insert_or_assign(blob.digest, blob.bytes);
        for (const fleet::CompactForm& form : blob.compact)
          lent_.insert_or_assign(form.digest, form.bytes);
      }
      recent_.pop_front();
    }
  }

  // Models from which clients of the open round train, instead of those of the round before.
  void ServeOlder(const std::vector<fleet::OlderModel>& older) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    older_.clear();
    for (const fleet::OlderModel& model : older) {
      for (const fleet::Blob& blob : model.broadcast.channels) {
        older_.emplace(blob.digest, blob.bytes);
        for (const fleet::CompactForm& form : blob.compact) older_.emplace(form.digest, form.bytes);
      }
    }
  }

  void Pin(fleet::Blob blob) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    pinned_.insert_or_assign(blob.digest, std::move(blob));
  }

  // Null if the blob is not served, or no longer served.
  std::shared_ptr<const AlignedBuffer> Find(const Digest& digest) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (const auto it = pinned_.find(digest); it != pinned_.end()) return it->second.bytes;
    if (const auto it = older_.find(digest); it != older_.end()) return it->second;
    for (const std::vector<fleet::Blob>& blobs : recent_) {
      const auto blob = std::ranges::find(blobs, digest, &fleet::Blob::digest);
      if (blob != blobs.end()) return blob->bytes;
      for (const fleet::Blob& whole : blobs) {
        const auto form = std::ranges::find(whole.compact, digest, &fleet::CompactForm::digest);
        if (form != whole.compact.end()) return form->bytes;
      }
    }
    const auto lent = lent_.find(digest);
    return lent == lent_.end() ? nullptr : lent->second.lock();
  }

  static constexpr size_t kRecent = 4;  // broadcasts, enough for slow downloads of older ones
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

 private:
  static uint64_t BytesOf(const std::vector<fleet::Blob>& blobs) {
    uint64_t bytes = 0;
    for (const fleet::Blob& blob : blobs) {
      bytes += blob.size;
      for (const fleet::CompactForm& form : blob.compact) bytes += form.size;
    }
    return bytes;
  }

  mutable absl::Mutex mutex_;
  std::deque<std::vector<fleet::Blob>> recent_ ABSL_GUARDED_BY(mutex_);
  // Those of ServeOlder, and their short forms.
  absl::flat_hash_map<Digest, std::shared_ptr<const AlignedBuffer>> older_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, fleet::Blob> pinned_ ABSL_GUARDED_BY(mutex_);
  // What was recent, while others hold it.
  std::map<Digest, std::weak_ptr<const AlignedBuffer>> lent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::server
