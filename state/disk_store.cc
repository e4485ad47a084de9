#include "state/disk_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/status.h"
#include "state/blob.h"

namespace macaw::state {
namespace {

constexpr uint64_t kShards = 256;  // sub-folders: a million clients are 4,000 names a folder

}  // namespace

DiskStateStore::DiskStateStore(std::string folder, StateSchema schema)
    : folder_(std::move(folder)), schema_(std::move(schema)) {}

absl::StatusOr<std::unique_ptr<DiskStateStore>> DiskStateStore::Open(const std::string& folder,
                                                                     StateSchema schema) {
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  return std::unique_ptr<DiskStateStore>(new DiskStateStore(folder, std::move(schema)));
}

std::string DiskStateStore::ShardOf(ClientId client) const {
  const uint64_t hash = Checksum(std::as_bytes(std::span(&client.value, 1)));
  return absl::StrFormat("%s/%02x", folder_, hash % kShards);
}

std::string DiskStateStore::PathOf(const Attempt& version) const {
  return absl::StrFormat("%s/%d-%d.%d.state", ShardOf(version.client), version.client.value,
                         version.fence.epoch, version.fence.counter);
}

absl::Status DiskStateStore::Put(const Attempt& version, std::span<const ConstVectorView> items) {
  MACAW_ASSIGN_OR_RETURN(const AlignedBuffer blob, EncodeBlob(version, items, schema_));
  const std::string path = PathOf(version);
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(const std::string stored, ReadFile(path));
    return std::ranges::equal(BytesOf(stored), blob.bytes()) ? absl::OkStatus()
                                                             : Overwriting(version);
  }
  // Made when first needed: creating 256 folders at once and syncing them takes a second.
  if (const std::string shard = ShardOf(version.client); !FileExists(shard)) {
    MACAW_RETURN_IF_ERROR(MakeDirectories(shard));
    MACAW_RETURN_IF_ERROR(SyncDirectory(folder_));
  }
  return Annotate(AtomicWriteFile(path, blob.bytes()), Describe(version));
}

absl::StatusOr<ClientState> DiskStateStore::Get(const Attempt& version) const {
  absl::StatusOr<std::string> stored = ReadFile(PathOf(version));
  if (absl::IsNotFound(stored.status())) return Annotate(Missing(version), folder_);
  if (!stored.ok()) return Annotate(stored.status(), Describe(version));
  auto blob = std::make_shared<AlignedBuffer>(stored->size());
  std::memcpy(blob->bytes().data(), stored->data(), stored->size());
  absl::StatusOr<ClientState> state = OpenBlob(std::move(blob), version, schema_);
  if (!state.ok()) return Annotate(state.status(), PathOf(version));
  return state;
}

absl::StatusOr<bool> DiskStateStore::Contains(const Attempt& version) const {
  return FileExists(PathOf(version));
}

absl::Status DiskStateStore::Delete(std::span<const Attempt> versions) {
  for (const Attempt& version : versions) {
    const std::string path = PathOf(version);
    // Not synced: a deletion lost in a crash leaves an orphan, which harms nobody.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot delete ", path));
    }
  }
  return absl::OkStatus();
}

}  // namespace macaw::state
