#include "worker/state_keeper.h"

#include <algorithm>
#include <utility>

#include "core/logging.h"
#include "core/status.h"
#include "state/blob.h"

namespace macaw::worker {
namespace {

// Slots wait when this much is queued for the store: then the store is slower than the slots.
constexpr uint64_t kMostUnwritten = uint64_t{128} << 20;
// How much one read fetches: many small states, or one large state.
constexpr uint64_t kReadBytes = uint64_t{256} << 10;
constexpr uint64_t kMostTogether = 32;

}  // namespace

StateKeeper::StateKeeper(std::unique_ptr<state::ClientStateStore> store, uint32_t slots)
    : store_(std::move(store)),
      together_(
          std::clamp<uint64_t>(kReadBytes / state::BlobBytes(store_->schema()), 1, kMostTogether)),
      depth_(2 * std::max<size_t>(slots, together_)),
      zeros_(Zeros(store_->schema())) {
  for (const FlatVector& zero : zeros_) none_.items.push_back(zero.view());
}

void StateKeeper::Expect(std::span<const Attempt> versions) {
  const absl::MutexLock lock(&mutex_);
  for (const Attempt& version : versions) {
    if (version.fence.counter != 0) expected_.push_back(version);
  }
  ReadMore();
}

void StateKeeper::ReadMore() {
  while (!expected_.empty() && ahead_.size() + together_ <= depth_) {
    std::vector<Attempt> next;
    while (!expected_.empty() && next.size() < together_) {
      if (ahead_.try_emplace(expected_.front()).second) next.push_back(expected_.front());
      expected_.pop_front();
    }
    if (next.empty()) continue;
    readers_.Post([this, next = std::move(next)] {
      std::vector<absl::StatusOr<state::ClientState>> states;
      std::vector<absl::StatusOr<state::BlobPtr>> blobs = store_->GetBlobs(next);
      work_.Count();
      for (size_t i = 0; i < next.size(); ++i) {
        if (blobs[i].ok()) {
          states.push_back(state::OpenBlob(*std::move(blobs[i]), next[i], store_->schema()));
        } else {
          states.emplace_back(blobs[i].status());
        }
      }
      const absl::MutexLock lock(&mutex_);
      for (size_t i = 0; i < next.size(); ++i) {
        const auto found = ahead_.find(next[i]);
        if (found != ahead_.end()) found->second = std::move(states[i]);
      }
    });
  }
}

absl::StatusOr<state::ClientState> StateKeeper::Read(const Attempt& version) {
  if (version.fence.counter == 0) return none_;
  {
    const absl::MutexLock lock(&mutex_);
    if (ahead_.contains(version)) {
      // Another slot may take the state meanwhile: a client can be evaluated while it trains.
      const auto ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        const auto found = ahead_.find(version);
        return found == ahead_.end() || found->second.has_value();
      };
      mutex_.Await(absl::Condition(&ready));
      if (const auto found = ahead_.find(version); found != ahead_.end()) {
        absl::StatusOr<state::ClientState> state = *std::move(found->second);
        ahead_.erase(found);
        ReadMore();
        return state;
      }
    } else {
      std::erase(expected_, version);
    }
  }
  return store_->Get(version);
}

absl::Status StateKeeper::Write(const Attempt& version, std::span<const ConstVectorView> items) {
  MACAW_ASSIGN_OR_RETURN(AlignedBuffer buffer, state::EncodeBlob(version, items, store_->schema()));
  auto blob = std::make_shared<const AlignedBuffer>(std::move(buffer));
  const uint64_t bytes = blob->size();
  {
    const absl::MutexLock lock(&mutex_);
    const auto room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return unwritten_ < kMostUnwritten;
    };
    mutex_.Await(absl::Condition(&room));
    unwritten_ += bytes;
    to_write_.push_back({version, std::move(blob)});
  }
  writer_.Post([this] { WriteQueued(); });
  return absl::OkStatus();
}

void StateKeeper::WriteQueued() {
  std::vector<state::NamedBlob> blobs;
  {
    const absl::MutexLock lock(&mutex_);
    blobs.swap(to_write_);
  }
  if (blobs.empty()) return;  // an earlier task wrote them
  uint64_t bytes = 0;
  for (const state::NamedBlob& named : blobs) bytes += named.blob->size();
  absl::Status status = store_->PutBlobs(blobs);
  work_.Count();
  const absl::MutexLock lock(&mutex_);
  unwritten_ -= bytes;
  if (write_error_.ok()) write_error_ = std::move(status);
}

absl::Status StateKeeper::Fence() {
  {
    const absl::MutexLock lock(&mutex_);
    expected_.clear();
    ahead_.clear();
    const auto written = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return unwritten_ == 0; };
    mutex_.Await(absl::Condition(&written));
    // Told once: whoever asks does not commit what was stored, and a disk has room again later.
    MACAW_RETURN_IF_ERROR(std::exchange(write_error_, absl::OkStatus()));
  }
  return store_->Flush();
}

void StateKeeper::Delete(std::vector<Attempt> versions) {
  writer_.Post([this, versions = std::move(versions)] {
    const absl::Status status = store_->Delete(versions);
    if (!status.ok()) Logger("state").Warning(absl::StrCat("not_deleted ", status.message()));
  });
}

}  // namespace macaw::worker
