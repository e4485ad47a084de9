#include "proto/wire/upload_store.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {

Upload::Upload(const Digest& digest, uint64_t size, bool verify,
               std::shared_ptr<std::atomic<uint64_t>> used, const Clock& clock, Executor& executor)
    : digest_(digest),
      size_(size),
      verify_(verify),
      used_(std::move(used)),
      clock_(clock),
      executor_(executor),
      buffer_(AlignedBuffer::Unset(size)),  // nobody reads past received_
      last_used_(clock.Now()) {}

Upload::Upload(const Digest& digest, std::shared_ptr<const AlignedBuffer> mapped,
               std::shared_ptr<std::atomic<uint64_t>> used, const Clock& clock, Executor& executor)
    : digest_(digest),
      size_(mapped->size()),
      verify_(false),
      used_(std::move(used)),
      clock_(clock),
      executor_(executor),
      mapped_(std::move(mapped)),
      state_(State::kComplete),
      received_(size_),
      last_used_(clock.Now()) {}

Upload::~Upload() { used_->fetch_sub(size_); }

uint64_t Upload::received() const {
  MutexLock lock(&mutex_);
  return received_;
}
bool Upload::complete() const {
  MutexLock lock(&mutex_);
  return state_ == State::kComplete;
}
bool Upload::failed() const {
  MutexLock lock(&mutex_);
  return state_ == State::kFailed;
}
TimePoint Upload::last_used() const {
  MutexLock lock(&mutex_);
  return last_used_;
}

absl::Status Upload::Append(uint64_t offset, uint64_t checksum,
                            std::span<const std::span<const std::byte>> data) {
  size_t length = 0;
  for (const auto piece : data) length += piece.size();
  bool start_hashing = false;
  std::vector<Done> done;
  {
    MutexLock lock(&mutex_);
    last_used_ = clock_.Now();
    if (offset > received_ || length > size_ || offset > size_ - length) {
      return Refuse(v1::Refusal::REASON_OFFSET,
                    absl::StrCat("a chunk at ", offset, " of ", length, " bytes; kept are ",
                                 received_, " of ", size_, " bytes"),
                    "offset", digest_);
    }
    if (offset < received_ || mapped_ != nullptr) {
      // A repeat, whole or in part. The checksum is over the whole chunk and the kept part may not
      // be touched, so only a chunk that begins where the kept bytes end is taken; a sender that
      // follows the offsets never notices.
      return offset + length <= received_
                 ? absl::OkStatus()
                 : Refuse(v1::Refusal::REASON_OFFSET,
                          absl::StrCat("a chunk across byte ", received_), "offset", digest_);
    }
    std::byte* to = buffer_.bytes().data() + offset;
    for (const auto piece : data) {
      if (piece.empty()) continue;
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    if (Checksum(std::as_const(buffer_).bytes().subspan(offset, length)) != checksum) {
      return Refuse(v1::Refusal::REASON_CHECKSUM,
                    absl::StrCat("the chunk at ", offset, " arrived damaged"), "checksum", digest_);
    }
    received_ += length;
    if (!verify_ && received_ == size_) {
      state_ = State::kComplete;
      done = std::exchange(waiting_, {});
    }
    start_hashing = verify_ && !hashing_ && hashed_ < received_;
    hashing_ = hashing_ || start_hashing;
  }
  for (Done& f : done) std::move(f)(absl::OkStatus());
  if (start_hashing) executor_.Post([self = shared_from_this()] { self->HashSome(); });
  return absl::OkStatus();
}

void Upload::HashSome() {
  uint64_t begin, end;
  {
    MutexLock lock(&mutex_);
    begin = hashed_;
    end = std::min<uint64_t>(received_, begin + kChunkBytes);
  }
  digester_.Add(std::as_const(buffer_).bytes().subspan(begin, end - begin));
  std::vector<Done> done;
  absl::Status outcome;
  {
    MutexLock lock(&mutex_);
    hashed_ = end;
    if (hashed_ == size_) {
      state_ = digester_.Finish() == digest_ ? State::kComplete : State::kFailed;
      done = std::exchange(waiting_, {});
      outcome = Outcome();
    }
    hashing_ = hashed_ < received_;
    if (hashing_)
      executor_.Post([self = shared_from_this()] { self->HashSome(); });  // lets others in between
  }
  for (Done& f : done) std::move(f)(outcome);
}

absl::Status Upload::Outcome() const {
  if (state_ == State::kComplete) return absl::OkStatus();
  return Refuse(v1::Refusal::REASON_DIGEST_MISMATCH,
                "the uploaded bytes are not those that the digest names; they were thrown away",
                "digest", digest_);
}

void Upload::WhenComplete(Done done) {
  absl::Status outcome;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kReceiving) {
      waiting_.push_back(std::move(done));
      return;
    }
    outcome = Outcome();
  }
  std::move(done)(outcome);
}

std::shared_ptr<const AlignedBuffer> Upload::bytes() {
  return {shared_from_this(), mapped_ != nullptr ? mapped_.get() : &buffer_};
}

UploadStore::UploadStore(const Options& options, const Clock& clock, Executor& executor)
    : options_(options), clock_(clock), executor_(executor) {}

void UploadStore::DropIdle() {
  const TimePoint oldest = clock_.Now() - options_.idle;
  absl::erase_if(
      held_, [&](const auto& e) { return e.second->last_used() < oldest || e.second->failed(); });
  absl::erase_if(claimed_, [](const auto& e) { return e.second.expired(); });
}

std::shared_ptr<Upload> UploadStore::FindLocked(const Digest& digest) {
  if (const auto it = held_.find(digest); it != held_.end()) return it->second;
  if (const auto it = claimed_.find(digest); it != claimed_.end()) return it->second.lock();
  return nullptr;
}

UploadStore::Begun UploadStore::Begin(const Digest& digest, uint64_t size,
                                      std::shared_ptr<const AlignedBuffer> mapped) {
  using fleet::UploadVerdict;
  if (size > options_.max_blob_bytes) return {UploadVerdict::kTooLarge, 0};
  MutexLock lock(&mutex_);
  DropIdle();
  if (const auto upload = FindLocked(digest); upload != nullptr) {
    if (upload->size() != size) return {UploadVerdict::kBusy, 0};
    if (upload->complete()) return {UploadVerdict::kHave, 0};
    return {UploadVerdict::kSend, upload->received()};
  }
  // Compared without adding, so that no size can overflow.
  const uint64_t used = used_->load();
  if (used > options_.budget_bytes || size > options_.budget_bytes - used)
    return {UploadVerdict::kBusy, 0};
  used_->fetch_add(size);  // only ever raised under the lock; the upload's end lowers it
  std::shared_ptr<Upload> fresh;
  try {
    fresh = mapped != nullptr
                ? std::make_shared<Upload>(digest, mapped, used_, clock_, executor_)
                : std::make_shared<Upload>(digest, size, options_.verify, used_, clock_, executor_);
  } catch (const std::bad_alloc&) {
    used_->fetch_sub(size);
    return {UploadVerdict::kBusy, 0};
  }
  held_.emplace(digest, std::move(fresh));
  return {mapped != nullptr ? UploadVerdict::kHave : UploadVerdict::kSend, 0};
}

std::shared_ptr<Upload> UploadStore::Find(const Digest& digest) {
  MutexLock lock(&mutex_);
  auto upload = FindLocked(digest);
  return upload != nullptr && !upload->failed() ? upload : nullptr;
}

std::shared_ptr<const AlignedBuffer> UploadStore::Get(const Digest& digest) {
  const auto upload = Find(digest);
  return upload != nullptr && upload->complete() ? upload->bytes() : nullptr;
}

void UploadStore::Claim(const Digest& digest) {
  MutexLock lock(&mutex_);
  const auto it = held_.find(digest);
  if (it == held_.end() || !it->second->complete()) return;
  claimed_[digest] = it->second;
  held_.erase(it);
}

}  // namespace macaw::wire
