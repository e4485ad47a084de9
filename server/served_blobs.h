#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
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
// (tables of clients, which many workers refer to). Thread-safe.
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
    if (recent_.size() > kRecent) recent_.pop_front();
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
    return nullptr;
  }

 private:
  static constexpr size_t kRecent = 4;  // enough for slow downloads of older ones

  mutable absl::Mutex mutex_;
  std::deque<std::vector<fleet::Blob>> recent_ ABSL_GUARDED_BY(mutex_);
  // Those of ServeOlder, and their short forms.
  absl::flat_hash_map<Digest, std::shared_ptr<const AlignedBuffer>> older_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, fleet::Blob> pinned_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macaw::server
