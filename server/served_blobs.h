#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proto/fleet/messages.h"

namespace macaw::server {

// The blobs that workers may download: recent broadcasts and models, and pinned blobs, which stay
// (tables of clients, which many workers refer to). Thread-safe.
class ServedBlobs {
 public:
  explicit ServedBlobs(std::optional<fleet::Blob> first) {
    if (first.has_value()) recent_.push_back(*std::move(first));
  }

  void Serve(const fleet::Blob& blob) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    for (const fleet::Blob& known : recent_) {
      if (known.digest == blob.digest) return;
    }
    recent_.push_back(blob);
    if (recent_.size() > kRecent) recent_.pop_front();
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
    for (const fleet::Blob& blob : recent_) {
      if (blob.digest == digest) return blob.bytes;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kRecent = 4;  // blobs; enough for slow downloads of older ones

  mutable absl::Mutex mutex_;
  std::deque<fleet::Blob> recent_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, fleet::Blob> pinned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::server
