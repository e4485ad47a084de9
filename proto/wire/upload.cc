#include "proto/wire/upload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checksum.h"
#include "core/file_blocks.h"
#include "proto/wire/limits.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {

Upload::Upload(const Digest& digest, std::shared_ptr<UploadMemory> memory, bool verify,
               const Clock& clock, Executor& executor)
    : digest_(digest),
      size_(memory->bytes().size()),
      verify_(verify),
      clock_(clock),
      executor_(executor),
      digester_(size_),
      hashed_(memory->bytes().bytes()),
      memory_(std::move(memory)),
      wanted_(digester_.wanted()),
      last_used_(clock.Now()) {
  if (memory_->file != nullptr) state_ = State::kLoading;
  if (memory_->mapped == nullptr) return;
  state_ = State::kComplete;
  received_ = size_;
}

uint64_t Upload::received() const {
  absl::MutexLock lock(&mutex_);
  return received_;
}
bool Upload::loaded() const {
  absl::MutexLock lock(&mutex_);
  return state_ != State::kLoading;
}
bool Upload::complete() const {
  absl::MutexLock lock(&mutex_);
  return state_ == State::kComplete;
}
bool Upload::failed() const {
  absl::MutexLock lock(&mutex_);
  return state_ == State::kFailed || state_ == State::kDropped;
}
TimePoint Upload::last_used() const {
  absl::MutexLock lock(&mutex_);
  return last_used_;
}
void Upload::Touch() {
  absl::MutexLock lock(&mutex_);
  last_used_ = clock_.Now();
}

absl::Status Upload::Append(uint64_t offset, uint64_t checksum,
                            std::span<const std::span<const std::byte>> data) {
  size_t length = 0;
  for (const auto piece : data) length += piece.size();
  Due due;
  std::vector<Done> done;
  {
    absl::MutexLock lock(&mutex_);
    if (state_ == State::kDropped || state_ == State::kLoading) return Outcome();
    last_used_ = clock_.Now();
    if (offset > received_ || length > size_ || offset > size_ - length) {
      return Refuse(v1::Refusal::REASON_OFFSET,
                    absl::StrCat("a chunk at ", offset, " of ", length, " bytes; kept are ",
                                 received_, " of ", size_, " bytes"),
                    "offset", digest_);
    }
    if (offset < received_ || memory_->mapped != nullptr) {
      // The chunk repeats stored bytes, all or some. The checksum covers the whole chunk, and
      // stored bytes must not be changed. So only a chunk that begins at the end of the stored
      // bytes is taken. A sender that follows the offsets never meets this case.
      return offset + length <= received_
                 ? absl::OkStatus()
                 : Refuse(v1::Refusal::REASON_OFFSET,
                          absl::StrCat("a chunk across byte ", received_), "offset", digest_);
    }
    if (Checksum(data) != checksum) {
      return Refuse(v1::Refusal::REASON_CHECKSUM,
                    absl::StrCat("the chunk at ", offset, " arrived damaged"), "checksum", digest_);
    }
    Overwrite(memory_->buffer.bytes().data() + offset, data);
    received_ += length;
    if (!verify_ && received_ == size_) {
      state_ = State::kComplete;
      done = std::exchange(waiting_, {});
    }
    due = MoreArrived();
  }
  for (Done& f : done) std::move(f)(absl::OkStatus());
  Post(due);
  return absl::OkStatus();
}

Upload::Due Upload::MoreArrived() {
  const Due due = {
      .hashing = verify_ && !hashing_ && received_ >= wanted_,
      .writing = writer_ != nullptr && !writing_ && written_ < received_,
  };
  hashing_ = hashing_ || due.hashing;
  writing_ = writing_ || due.writing;
  return due;
}

void Upload::Post(Due due) {
  if (due.hashing) executor_.Post([self = shared_from_this()] { self->HashSome(); });
  if (!due.writing) return;
  absl::MutexLock lock(&mutex_);
  writer_->Post([self = shared_from_this()] { self->WriteSome(); });
}

void Upload::Load(Executor& writer) {
  std::shared_ptr<UploadMemory> memory;
  {
    absl::MutexLock lock(&mutex_);
    if (memory_ == nullptr) return;
    memory = memory_;
  }
  const uint64_t read = memory->file->Read(memory->buffer.bytes());
  Due due;
  {
    absl::MutexLock lock(&mutex_);
    if (state_ != State::kLoading) return;  // dropped meanwhile
    state_ = State::kReceiving;
    writer_ = &writer;
    received_ = written_ = read;
    due = MoreArrived();
  }
  Post(due);
}

void Upload::WriteSome() {
  std::shared_ptr<UploadMemory> memory;
  std::shared_ptr<PartialFile> file;
  uint64_t begin = 0, end = 0;
  {
    absl::MutexLock lock(&mutex_);
    writing_ = memory_ != nullptr && memory_->file != nullptr && written_ < received_;
    if (!writing_) return;
    memory = memory_;
    file = memory_->file;
    begin = written_;
    end = std::min(received_, begin + kChunkBytes);
  }
  file->Append(std::as_const(memory->buffer).bytes().subspan(begin, end - begin));
  absl::MutexLock lock(&mutex_);
  written_ = end;
  writing_ = written_ < received_;
  if (writing_) writer_->Post([self = shared_from_this()] { self->WriteSome(); });
}

void Upload::HashSome() {
  uint64_t arrived;
  std::shared_ptr<const UploadMemory> memory;
  {
    absl::MutexLock lock(&mutex_);
    if (memory_ == nullptr) return;
    memory = memory_;
    arrived = received_;
  }
  digester_.Add(memory->buffer.bytes().first(arrived));
  hashed_.Until(digester_.hashed());
  std::vector<Done> done;
  absl::Status outcome;
  {
    absl::MutexLock lock(&mutex_);
    if (state_ == State::kDropped) return;
    wanted_ = digester_.wanted();
    if (digester_.done()) {
      state_ = digester_.Finish() == digest_ ? State::kComplete : State::kFailed;
      done = std::exchange(waiting_, {});
      outcome = Outcome();
    }
    hashing_ = received_ >= wanted_;
    if (hashing_)
      executor_.Post([self = shared_from_this()] { self->HashSome(); });  // lets other tasks run
  }
  for (Done& f : done) std::move(f)(outcome);
}

absl::Status Upload::Outcome() const {
  if (state_ == State::kComplete) return absl::OkStatus();
  if (state_ == State::kDropped || state_ == State::kLoading) {
    return Refuse(v1::Refusal::REASON_NOT_BEGUN, "the upload was dropped: ask with BeginUpload",
                  "digest", digest_);
  }
  return Refuse(v1::Refusal::REASON_DIGEST_MISMATCH,
                "the uploaded bytes are not those that the digest names; they were thrown away",
                "digest", digest_);
}

void Upload::WhenComplete(Done done) {
  absl::Status outcome;
  {
    absl::MutexLock lock(&mutex_);
    if (state_ == State::kReceiving || state_ == State::kLoading) {
      waiting_.push_back(std::move(done));
      return;
    }
    outcome = Outcome();
  }
  std::move(done)(outcome);
}

void Upload::Park() {
  std::shared_ptr<PartialFile> file;
  {
    absl::MutexLock lock(&mutex_);
    if (memory_ != nullptr) file = std::move(memory_->file);
  }
  Drop();
}

void Upload::Drop() {
  std::shared_ptr<UploadMemory> memory;  // freed after the lock is released
  std::vector<Done> done;
  absl::Status outcome;
  {
    absl::MutexLock lock(&mutex_);
    memory = std::exchange(memory_, nullptr);
    state_ = State::kDropped;
    done = std::exchange(waiting_, {});
    outcome = Outcome();
  }
  for (Done& f : done) std::move(f)(outcome);
}

std::shared_ptr<const AlignedBuffer> Upload::bytes() const {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kComplete) return nullptr;
  return {memory_, &memory_->bytes()};
}

}  // namespace macaw::wire
