#include "worker/running_marker.h"

#include <atomic>
#include <cstring>

#include "core/files.h"
#include "core/status.h"

namespace macaw::worker {

absl::StatusOr<RunningMarker> RunningMarker::Open(const std::string& folder,
                                                  const std::string& worker, uint32_t slots) {
  RunningMarker marker;
  if (folder.empty()) return marker;
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path = absl::StrCat(folder, "/", worker, ".running");
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    for (size_t at = 0; at + sizeof(Entry) <= bytes.size(); at += sizeof(Entry)) {
      Entry entry;
      std::memcpy(&entry, bytes.data() + at, sizeof(entry));
      if (entry.counter == 0) continue;
      marker.died_running_.push_back(
          {ClientId(entry.client), Fence{static_cast<uint32_t>(entry.epoch), entry.counter}});
    }
  }
  MACAW_ASSIGN_OR_RETURN(marker.file_, KeptBytes::Open(path, slots * sizeof(Entry)));
  std::memset(marker.file_->bytes().data(), 0, marker.file_->bytes().size());
  return marker;
}

void RunningMarker::Started(uint32_t slot, const Attempt& attempt) {
  Entry* const entry = At(slot);
  if (entry == nullptr) return;
  entry->client = attempt.client.value;
  entry->epoch = attempt.fence.epoch;
  // The counter makes the entry valid, so it must become visible last. The page survives the
  // process in the kernel's cache.
  std::atomic_ref<uint64_t>(entry->counter).store(attempt.fence.counter, std::memory_order_release);
}

void RunningMarker::Finished(uint32_t slot) {
  if (Entry* const entry = At(slot); entry != nullptr)
    std::atomic_ref<uint64_t>(entry->counter).store(0, std::memory_order_release);
}

}  // namespace macaw::worker
