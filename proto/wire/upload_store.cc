#include "proto/wire/upload_store.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macaw::wire {

namespace {

// Claimed uploads of a session and purpose that the handler may hold while the next one arrives.
// The first sums of a round are the round's open sum until others are added, and those others may
// come from the same session.
constexpr int kHeldOfSession = 1;

// What the name of an upload's file says: session, purpose, round, size and digest.
struct FileName {
  SessionId session;
  fleet::BlobPurpose purpose{};
  Round round;

  static std::optional<FileName> Of(absl::string_view name) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
    uint64_t session = 0, round = 0;
    int purpose = 0;
    if (parts.size() != 5 || !absl::SimpleHexAtoi(parts[0], &session) ||
        !absl::SimpleAtoi(parts[1], &purpose) || !absl::SimpleAtoi(parts[2], &round)) {
      return std::nullopt;
    }
    return FileName{SessionId(session), static_cast<fleet::BlobPurpose>(purpose), Round(round)};
  }
};

std::string NameOf(const fleet::UploadOffer& offer) {
  return absl::StrCat(absl::Hex(offer.session.value), "-", static_cast<int>(offer.purpose), "-",
                      offer.round.value, "-", offer.size, "-", offer.digest.Hex());
}

}  // namespace

UploadStore::UploadStore(const Options& options, std::function<bool(SessionId)> open,
                         const Clock& clock, Executor& executor,
                         std::unique_ptr<PartialFiles> partials)
    : options_(options),
      open_(std::move(open)),
      clock_(clock),
      executor_(executor),
      partials_(std::move(partials)) {
  if (partials_ != nullptr) writer_.emplace("partials", 1);
}

void UploadStore::Close() {
  if (partials_ == nullptr) return;
  partials_->Close();
  writer_->WaitIdle();
  absl::MutexLock lock(&mutex_);
  for (auto& [key, entry] : entries_)
    if (entry.upload != nullptr) std::exchange(entry.upload, nullptr)->Park();
}

void UploadStore::Drop(Entry& entry) {
  if (entry.upload != nullptr) std::exchange(entry.upload, nullptr)->Drop();
}

bool UploadStore::HasFile(const Entry& entry) {
  const auto memory = entry.memory.lock();
  return memory != nullptr && memory->file != nullptr;
}

TimePoint UploadStore::LastUse(const Key& key, const Upload& upload) {
  using fleet::BlobPurpose;
  TimePoint last = upload.last_used();
  if (std::get<BlobPurpose>(key) == BlobPurpose::kPopulation) return last;
  // The sums of a commit wait while its records arrive.
  for (const BlobPurpose purpose : {BlobPurpose::kSums, BlobPurpose::kRecords}) {
    const auto [first, end] = Of(std::get<SessionId>(key), purpose);
    for (auto it = first; it != end; ++it)
      if (it->second.upload != nullptr) last = std::max(last, it->second.upload->last_used());
  }
  return last;
}

void UploadStore::Sweep(const Key& own, const fleet::UploadOffer& newest) {
  const TimePoint oldest = clock_.Now() - options_.idle;
  // Compared without adding, so that no size can overflow.
  const uint64_t half = options_.budget_bytes / 2, used = used_->load();
  const uint64_t more = entries_.contains(own) ? 0 : newest.size;
  const bool is_short = used > half || more > half - used;
  for (auto& [key, entry] : entries_) {
    if (entry.upload == nullptr) continue;
    const bool of_session = std::get<fleet::BlobPurpose>(key) != fleet::BlobPurpose::kPopulation;
    if (entry.upload->failed() ||
        (of_session && (entry.round < newest.round || !open_(std::get<SessionId>(key))))) {
      Drop(entry);
    } else if (key != own && (is_short || !of_session || HasFile(entry)) &&
               LastUse(key, *entry.upload) < oldest) {
      std::exchange(entry.upload, nullptr)->Park();
    }
  }
  std::erase_if(entries_, [](const auto& e) { return Gone(e.second); });
  if (partials_ == nullptr) return;
  partials_->Sweep([&](const std::string& file) {
    const std::optional<FileName> name = FileName::Of(file);
    // A session has one upload of each purpose.
    const bool replaced = name.has_value() && name->session == newest.session &&
                          name->purpose == newest.purpose && file != NameOf(newest);
    return name.has_value() && !replaced && name->round >= newest.round && open_(name->session);
  });
}

std::pair<UploadStore::Entries::iterator, UploadStore::Entries::iterator> UploadStore::Of(
    SessionId session, fleet::BlobPurpose purpose) {
  const auto first = entries_.lower_bound({session, purpose, Digest{}});
  auto last = first;
  while (last != entries_.end() && std::get<SessionId>(last->first) == session &&
         std::get<fleet::BlobPurpose>(last->first) == purpose) {
    ++last;
  }
  return {first, last};
}

bool UploadStore::MakeRoom(const fleet::UploadOffer& offer) {
  const auto [first, last] = Of(offer.session, offer.purpose);
  if (offer.purpose != fleet::BlobPurpose::kPopulation) {
    int held = 0;  // by the handler
    for (auto it = first; it != last; ++it) {
      Drop(it->second);
      if (!it->second.memory.expired()) ++held;
    }
    if (held > kHeldOfSession) return false;
  } else {
    if (offer.session.value != 0)  // a caller with a name brings one at a time
      for (auto it = first; it != last; ++it) Drop(it->second);
    // Drops uploads, the longest unused first, until there is room.
    uint64_t taken = 0;
    std::vector<Entry*> oldest;
    for (auto& [key, entry] : entries_) {
      if (std::get<fleet::BlobPurpose>(key) != offer.purpose) continue;
      if (const auto memory = entry.memory.lock()) taken += memory->bytes().size();
      if (entry.upload != nullptr) oldest.push_back(&entry);
    }
    std::ranges::sort(oldest, {}, [](const Entry* entry) {
      return std::pair(entry->upload->received() > 0, entry->upload->last_used());
    });
    const uint64_t budget = options_.population_budget_bytes;
    for (Entry* entry : oldest) {
      if (taken <= budget && offer.size <= budget - taken) break;
      const uint64_t size = entry->upload->size();
      Drop(*entry);
      if (entry->memory.expired()) taken -= size;
    }
    if (taken > budget || offer.size > budget - taken) return false;
  }
  // Compared without adding, so that no size can overflow.
  const uint64_t used = used_->load();
  return used <= options_.budget_bytes && offer.size <= options_.budget_bytes - used;
}

UploadStore::Begun UploadStore::Begin(const fleet::UploadOffer& offer,
                                      std::shared_ptr<const AlignedBuffer> mapped) {
  using fleet::UploadVerdict;
  const bool shared = offer.purpose == fleet::BlobPurpose::kPopulation;
  const uint64_t most = shared ? std::min(options_.max_blob_bytes, options_.population_budget_bytes)
                               : options_.max_blob_bytes;
  if (offer.size > most) return {UploadVerdict::kTooLarge, 0};
  std::shared_ptr<Upload> made;
  Begun begun;
  {
    absl::MutexLock lock(&mutex_);
    begun = BeginLocked(offer, std::move(mapped), made);
  }
  if (made == nullptr || made->loaded()) return begun;
  made->Load(*writer_);  // without the lock: others need not wait for the disk
  return {UploadVerdict::kSend, made->received()};
}

UploadStore::Begun UploadStore::BeginLocked(const fleet::UploadOffer& offer,
                                            std::shared_ptr<const AlignedBuffer> mapped,
                                            std::shared_ptr<Upload>& made) {
  using fleet::UploadVerdict;
  const bool shared = offer.purpose == fleet::BlobPurpose::kPopulation;
  const Key key{offer.session, offer.purpose, offer.digest};
  Sweep(key, offer);
  if (const auto found = entries_.find(key); found != entries_.end()) {
    const auto memory = found->second.memory.lock();
    if (memory != nullptr && memory->bytes().size() == offer.size) {
      const auto& upload = found->second.upload;
      if (upload != nullptr) upload->Touch();
      if (upload == nullptr || upload->complete()) return {UploadVerdict::kHave, 0};
      if (!upload->loaded()) return {UploadVerdict::kBusy, 0};
      return {UploadVerdict::kSend, upload->received()};
    }
    // One digest cannot have two sizes. The upload that has received bytes stays.
    const auto& upload = found->second.upload;
    if (shared && memory != nullptr && (upload == nullptr || upload->received() > 0))
      return {UploadVerdict::kBusy, 0};
    Drop(found->second);
  }
  const bool on_disk = partials_ != nullptr && mapped == nullptr && !shared;
  // A task may still write what arrived before the upload left memory.
  if (on_disk && partials_->InUse(NameOf(offer))) return {UploadVerdict::kBusy, 0};
  if (!MakeRoom(offer)) return {UploadVerdict::kBusy, 0};
  std::erase_if(entries_, [](const auto& e) { return Gone(e.second); });
  std::shared_ptr<UploadMemory> memory;
  used_->fetch_add(offer.size);  // raised only under the lock; ~UploadMemory lowers it
  std::shared_ptr<PartialFile> file =
      on_disk ? partials_->Take(NameOf(offer), offer.size) : nullptr;
  try {
    AlignedBuffer own = file != nullptr ? file->Map(offer.size) : AlignedBuffer();
    if (own.size() == 0 && mapped == nullptr) own = AlignedBuffer::Unset(offer.size);
    memory = std::make_shared<UploadMemory>(std::move(own), mapped, used_);
  } catch (const std::bad_alloc&) {
    if (file != nullptr) file->Discard();
    used_->fetch_sub(offer.size);
    return {UploadVerdict::kBusy, 0};
  }
  memory->file = std::move(file);
  made =
      std::make_shared<Upload>(offer.digest, memory, options_.verify || shared, clock_, executor_);
  entries_.insert_or_assign(key, Entry{.round = offer.round, .upload = made, .memory = memory});
  return {mapped != nullptr ? UploadVerdict::kHave : UploadVerdict::kSend, 0};
}

std::shared_ptr<Upload> UploadStore::Find(SessionId session, const Digest& digest) {
  using fleet::BlobPurpose;
  absl::MutexLock lock(&mutex_);
  for (const auto purpose : {BlobPurpose::kPopulation, BlobPurpose::kSums, BlobPurpose::kRecords}) {
    const auto it = entries_.find({session, purpose, digest});
    if (it == entries_.end() || it->second.upload == nullptr) continue;
    return it->second.upload->failed() ? nullptr : it->second.upload;
  }
  return nullptr;
}

std::shared_ptr<const AlignedBuffer> UploadStore::Get(SessionId session, fleet::BlobPurpose purpose,
                                                      const Digest& digest) {
  absl::MutexLock lock(&mutex_);
  const auto it = entries_.find({session, purpose, digest});
  if (it == entries_.end()) return nullptr;
  if (it->second.upload != nullptr) {
    it->second.upload->Touch();
    return it->second.upload->bytes();
  }
  const auto memory = it->second.memory.lock();
  return memory == nullptr ? nullptr
                           : std::shared_ptr<const AlignedBuffer>(memory, &memory->bytes());
}

void UploadStore::Claim(SessionId session, fleet::BlobPurpose purpose, const Digest& digest) {
  absl::MutexLock lock(&mutex_);
  const auto it = entries_.find({session, purpose, digest});
  if (it == entries_.end() || it->second.upload == nullptr || !it->second.upload->complete())
    return;
  it->second.upload = nullptr;  // not dropped: its holders keep the bytes
}

}  // namespace macaw::wire
