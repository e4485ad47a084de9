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
#include "server/split_model.h"

namespace macaw::server {

// The blobs that workers may download: recent broadcasts and models, and pinned blobs, which stay
// (tables of clients, which many workers refer to; the base of a model with frozen tensors). A
// model with parts is made whole for a worker that asks for it, which is one of release 0.1.0.
// Thread-safe.
class ServedBlobs {
 public:
  // `split`: of the run's model; null: it has no parts.
  ServedBlobs(std::optional<fleet::Blob> first, std::shared_ptr<const SplitModel> split)
      : split_(std::move(split)) {
    if (first.has_value()) recent_.push_back({*std::move(first)});
    if (split_ != nullptr) Pin(split_->base());
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
      for (const fleet::Blob& blob : model.broadcast.channels) AddOlder(blob);
    }
  }

  void Pin(fleet::Blob blob) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    pinned_.insert_or_assign(blob.digest, std::move(blob));
  }

  // Null if the blob is not served, or no longer served.
  std::shared_ptr<const AlignedBuffer> Find(const Digest& digest) const
      ABSL_LOCKS_EXCLUDED(mutex_) {
    std::optional<fleet::Blob> whole;
    {
      absl::MutexLock lock(&mutex_);
      if (const auto it = pinned_.find(digest); it != pinned_.end()) return it->second.bytes;
      if (const auto it = older_.find(digest); it != older_.end()) {
        if (!it->second.has_parts()) return it->second.bytes;
        whole = it->second;
      }
      for (const std::vector<fleet::Blob>& blobs : recent_) {
        for (const fleet::Blob& blob : blobs) {
          if (blob.digest == digest && blob.has_parts()) whole = blob;
          if (const auto bytes = BytesIn(blob, digest); bytes != nullptr) return bytes;
        }
      }
    }
    return whole.has_value() ? Joined(*whole) : nullptr;
  }

 private:
  static constexpr size_t kRecent = 4;  // enough for slow downloads of older ones
  static constexpr size_t kJoined = 2;

  void AddOlder(const fleet::Blob& blob) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    older_.emplace(blob.digest, blob);
    for (const fleet::CompactForm& form : blob.compact)
      older_.emplace(form.digest, fleet::Blob{form.digest, form.size, form.bytes});
    for (const fleet::Blob& part : blob.parts) AddOlder(part);
  }

  // Those of the blob, of one of its parts or of a short form of them; null: neither has the digest.
  static std::shared_ptr<const AlignedBuffer> BytesIn(const fleet::Blob& blob,
                                                      const Digest& digest) {
    if (blob.digest == digest) return blob.bytes;
    const auto form = std::ranges::find(blob.compact, digest, &fleet::CompactForm::digest);
    if (form != blob.compact.end()) return form->bytes;
    for (const fleet::Blob& part : blob.parts) {
      if (auto bytes = BytesIn(part, digest); bytes != nullptr) return bytes;
    }
    return nullptr;
  }

  std::shared_ptr<const AlignedBuffer> Joined(const fleet::Blob& whole) const
      ABSL_LOCKS_EXCLUDED(joined_mutex_) {
    absl::MutexLock lock(&joined_mutex_);  // it is made once for those who ask meanwhile
    const auto known = std::ranges::find(joined_, whole.digest, &fleet::Blob::digest);
    if (known != joined_.end()) return known->bytes;
    AlignedBuffer bytes = split_->Encode(whole.trained().bytes->bytes());
    joined_.push_back(
        {whole.digest, whole.size, std::make_shared<const AlignedBuffer>(std::move(bytes))});
    if (joined_.size() > kJoined) joined_.pop_front();
    return joined_.back().bytes;
  }

  const std::shared_ptr<const SplitModel> split_;

  mutable absl::Mutex mutex_;
  std::deque<std::vector<fleet::Blob>> recent_ ABSL_GUARDED_BY(mutex_);
  // Those of ServeOlder, with their parts and short forms.
  absl::flat_hash_map<Digest, fleet::Blob> older_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Digest, fleet::Blob> pinned_ ABSL_GUARDED_BY(mutex_);
  mutable absl::Mutex joined_mutex_;
  mutable std::deque<fleet::Blob> joined_ ABSL_GUARDED_BY(joined_mutex_);
};

}  // namespace macaw::server
