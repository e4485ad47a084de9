#include "state/disk_store.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/status.h"
#include "state/blob.h"
#include "state/folder_of_run.h"

namespace macaw::state {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSegmentBytes = uint64_t{64} << 20;  // approximate size of a full file
constexpr uint64_t kMostSlots = 65536;
constexpr uint64_t kLarge = 65536;  // larger records begin at a block of their own
constexpr size_t kOpenFiles = 32;
constexpr char kSuffix[] = ".states";

Segment::Shape ShapeFor(const StateSchema& schema) {
  const uint64_t record = BlobBytes(schema);
  const uint64_t stride =
      record < kLarge ? record : (record + Segment::kBlock - 1) / Segment::kBlock * Segment::kBlock;
  const uint64_t slots =
      std::clamp<uint64_t>(std::bit_floor(kSegmentBytes / stride), 1, kMostSlots);
  return {.record = record, .stride = stride, .slots = slots};
}

std::string About(const StateSchema& schema, const Digest& run, const Segment::Shape& shape) {
  return absl::StrCat("macaw client states, format 1\nrun ", run.Hex(), "\nschema ",
                      SchemaDigest(schema).Hex(), "\nrecord ", shape.record, "\nstride ",
                      shape.stride, "\nslots ", shape.slots, "\n");
}

absl::Status CheckAbout(const std::string& path, const std::string& wanted) {
  MACAW_ASSIGN_OR_RETURN(const std::string found, ReadFile(path));
  if (found == wanted) return absl::OkStatus();
  const auto line = [](const std::string& text, size_t i) {
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    return i < lines.size() ? lines[i] : std::string();
  };
  const char* what = line(found, 0) != line(wanted, 0)   ? "are in another format"
                     : line(found, 1) != line(wanted, 1) ? "belong to another run"
                                                         : "belong to another model or algorithm";
  return absl::FailedPreconditionError(
      absl::StrCat("the client states in ", path, " ", what,
                   ": give this run a folder of its own (state.path), or remove that one"));
}

}  // namespace

DiskStateStore::DiskStateStore(std::string folder, StateSchema schema, const Segment::Shape& shape,
                               Durability durability)
    : ClientStateStore(std::move(schema)),
      folder_(std::move(folder)),
      shape_(shape),
      durability_(durability) {}

absl::StatusOr<std::unique_ptr<DiskStateStore>> DiskStateStore::Open(const std::string& folder,
                                                                     StateSchema schema,
                                                                     const Digest& run,
                                                                     Durability durability) {
  const Segment::Shape shape = ShapeFor(schema);
  const std::string about = About(schema, run, shape);
  const std::string path = absl::StrCat(folder, "/", kStoreFile);
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  // Processes that start at the same time write the same bytes.
  // A folder that is named after the run can hold no other run's file, so one that differs is
  // damaged. It is written anew. Each state is checked when it is read.
  if (!FileExists(path) || (IsFolderOf(run, folder) && !CheckAbout(path, about).ok()))
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(path, about));
  MACAW_RETURN_IF_ERROR(CheckAbout(path, about));
  return std::unique_ptr<DiskStateStore>(
      new DiskStateStore(folder, std::move(schema), shape, durability));
}

std::string DiskStateStore::PathOf(const Key& key) const {
  return absl::StrCat(folder_, "/", key.epoch, "-", key.block, kSuffix);
}

absl::StatusOr<std::vector<DiskStateStore::Key>> DiskStateStore::Keys() const {
  std::vector<Key> keys;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != kSuffix) continue;
    const std::vector<std::string> parts = absl::StrSplit(entry.path().stem().string(), '-');
    Key key;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &key.epoch) &&
        absl::SimpleAtoi(parts[1], &key.block)) {
      keys.push_back(key);
    }
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder_));
  std::sort(keys.begin(), keys.end());
  return keys;
}

absl::StatusOr<std::shared_ptr<Segment>> DiskStateStore::Find(const Key& key,
                                                              Segment::Mode mode) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = std::ranges::find(open_, key, [](const auto& entry) { return entry.first; });
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front().second;
  }
  MACAW_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment,
                         Segment::Open(PathOf(key), shape_, mode));
  open_.emplace_front(key, segment);
  if (open_.size() > kOpenFiles) open_.pop_back();
  return segment;
}

absl::Status DiskStateStore::PutBlob(const Attempt& version, BlobPtr blob) {
  const Key key = KeyOf(version.fence);
  const uint64_t slot = SlotOf(version.fence);
  if (blob->size() != shape_.record) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(version), ": ", blob->size(),
                                                   " bytes in a store of ", shape_.record));
  }
  const absl::StatusOr<std::shared_ptr<Segment>> segment = Find(key, Segment::Mode::kCreate);
  if (!segment.ok()) return Annotate(segment.status(), Describe(version));
  std::array<std::byte, kBlobHeader> header;
  MACAW_RETURN_IF_ERROR((*segment)->Read(slot, header));
  if (NameIn(header).has_value()) {
    auto stored = AlignedBuffer::Unset(shape_.record);
    MACAW_RETURN_IF_ERROR((*segment)->Read(slot, stored.bytes()));
    if (std::ranges::equal(std::as_const(stored).bytes(), blob->bytes())) {
      MarkDirty(key);  // it is unknown whether it was synced
      return absl::OkStatus();
    }
    const auto read = std::make_shared<const AlignedBuffer>(std::move(stored));
    // After an error, an earlier attempt may have left half a record. Nobody was told of it, so it
    // may be overwritten.
    if (OpenBlob(read, *NameIn(header), schema()).ok()) return Overwriting(version);
  }
  const absl::Status written = (*segment)->Write(slot, blob->bytes(), kBlobHeader);
  MarkDirty(key);  // after the write, even if it failed: a Flush in the meantime has not synced it
  return Annotate(written, Describe(version));
}

void DiskStateStore::MarkDirty(const Key& key) {
  const absl::MutexLock lock(&mutex_);
  if (durability_ == Durability::kMachine) dirty_.insert(key);
}

absl::StatusOr<BlobPtr> DiskStateStore::GetBlob(const Attempt& version) const {
  const auto segment = Find(KeyOf(version.fence), Segment::Mode::kExisting);
  if (absl::IsNotFound(segment.status())) return Annotate(Missing(version), folder_);
  if (!segment.ok()) return Annotate(segment.status(), Describe(version));
  auto blob = AlignedBuffer::Unset(shape_.record);
  MACAW_RETURN_IF_ERROR(
      Annotate((*segment)->Read(SlotOf(version.fence), blob.bytes()), Describe(version)));
  const std::span<const std::byte> header = std::as_const(blob).bytes().first(kBlobHeader);
  if (std::ranges::all_of(header, [](std::byte b) { return b == std::byte{0}; })) {
    return Annotate(Missing(version), (*segment)->path());
  }
  return std::make_shared<const AlignedBuffer>(std::move(blob));
}

absl::StatusOr<bool> DiskStateStore::Contains(const Attempt& version) const {
  const auto segment = Find(KeyOf(version.fence), Segment::Mode::kExisting);
  if (absl::IsNotFound(segment.status())) return false;
  MACAW_RETURN_IF_ERROR(segment.status());
  std::array<std::byte, kBlobHeader> header;
  MACAW_RETURN_IF_ERROR((*segment)->Read(SlotOf(version.fence), header));
  return NameIn(header) == version;
}

absl::Status DiskStateStore::Flush() {
  std::set<Key> dirty;
  {
    const absl::MutexLock lock(&mutex_);
    dirty.swap(dirty_);
  }
  if (dirty.empty()) return absl::OkStatus();
  const auto sync = [&]() -> absl::Status {
    for (const Key& key : dirty) {
      MACAW_ASSIGN_OR_RETURN(const auto segment, Find(key, Segment::Mode::kExisting));
      MACAW_RETURN_IF_ERROR(segment->Sync());
    }
    return SyncDirectory(folder_);  // the files themselves may be new
  };
  const absl::Status status = sync();
  if (!status.ok()) {
    const absl::MutexLock lock(&mutex_);
    dirty_.merge(dirty);
  }
  return status;
}

absl::Status DiskStateStore::EraseIn(const Key& key, std::span<const Attempt> versions) {
  const auto segment = Find(key, Segment::Mode::kExisting);
  if (absl::IsNotFound(segment.status())) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(segment.status());
  std::vector<uint64_t> slots;
  for (const Attempt& version : versions) {
    std::array<std::byte, kBlobHeader> header;
    MACAW_RETURN_IF_ERROR((*segment)->Read(SlotOf(version.fence), header));
    const std::optional<Attempt> name = NameIn(header);
    if (!name.has_value() || *name == version) slots.push_back(SlotOf(version.fence));
  }
  const Fence settled = [this] {
    const absl::MutexLock lock(&mutex_);
    return settled_;
  }();
  const Fence first{key.epoch, key.block * shape_.slots};
  const Fence last{key.epoch, first.counter + shape_.slots - 1};
  const uint64_t ended = settled >= last ? shape_.slots : settled.counter - first.counter + 1;
  MACAW_RETURN_IF_ERROR((*segment)->Erase(slots, ended));
  MACAW_ASSIGN_OR_RETURN(const uint64_t left, (*segment)->BytesOnDisk());
  const absl::MutexLock lock(&mutex_);
  if (left > 0 || settled < last) return absl::OkStatus();
  std::erase_if(open_, [&](const auto& entry) { return entry.first == key; });
  dirty_.erase(key);
  if (::unlink(PathOf(key).c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot delete ", PathOf(key)));
  }
  return absl::OkStatus();
}

absl::Status DiskStateStore::Delete(std::span<const Attempt> versions) {
  std::vector<Attempt> sorted(versions.begin(), versions.end());
  std::ranges::sort(sorted, {}, &Attempt::fence);
  if (sorted.empty()) return absl::OkStatus();
  {
    // A version is deleted only after a later one replaced it in a closed round, and fences are
    // handed out in order. So all attempts up to this one have ended.
    const absl::MutexLock lock(&mutex_);
    settled_ = std::max(settled_, sorted.back().fence);
  }
  for (auto first = sorted.begin(); first != sorted.end();) {
    const Key key = KeyOf(first->fence);
    const auto last =
        std::find_if(first, sorted.end(), [&](const Attempt& v) { return KeyOf(v.fence) != key; });
    MACAW_RETURN_IF_ERROR(EraseIn(key, std::span(first, last)));
    first = last;
  }
  return absl::OkStatus();
}

absl::Status DiskStateStore::ForEach(const std::function<void(const Attempt&)>& visit) const {
  MACAW_ASSIGN_OR_RETURN(const std::vector<Key> keys, Keys());
  for (const Key& key : keys) {
    MACAW_ASSIGN_OR_RETURN(const auto segment,
                           Segment::Open(PathOf(key), shape_, Segment::Mode::kExisting));
    MACAW_ASSIGN_OR_RETURN(const uint64_t slots, segment->UsedSlots());
    for (uint64_t slot = 0; slot < slots; ++slot) {
      std::array<std::byte, kBlobHeader> header;
      MACAW_RETURN_IF_ERROR(segment->Read(slot, header));
      const std::optional<Attempt> name = NameIn(header);
      if (name.has_value()) visit(*name);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DiskStateStore::Usage> DiskStateStore::UsageOnDisk() const {
  MACAW_ASSIGN_OR_RETURN(const std::vector<Key> keys, Keys());
  Usage usage{.files = keys.size()};
  for (const Key& key : keys) {
    MACAW_ASSIGN_OR_RETURN(const auto segment,
                           Segment::Open(PathOf(key), shape_, Segment::Mode::kExisting));
    MACAW_ASSIGN_OR_RETURN(const uint64_t bytes, segment->BytesOnDisk());
    usage.bytes += bytes;
  }
  return usage;
}

}  // namespace macaw::state
