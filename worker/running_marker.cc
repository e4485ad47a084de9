#include "worker/running_marker.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/fd.h"
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
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.open()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const size_t size = slots * sizeof(Entry);
  // Reserves the space first: on a full disk, a write to a hole of a mapped file raises SIGBUS.
  int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size));
  void* address = MAP_FAILED;
  if (error == 0) {
    const bool cut = ::ftruncate(fd.get(), static_cast<off_t>(size)) == 0;
    if (cut) address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    error = errno;
  }
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot reserve ", size, " bytes for ", path));
  }
  std::memset(address, 0, size);
  marker.entries_ = static_cast<Entry*>(address);
  marker.slots_ = slots;
  return marker;
}

RunningMarker::RunningMarker(RunningMarker&& other) noexcept
    : died_running_(std::move(other.died_running_)),
      entries_(std::exchange(other.entries_, nullptr)),
      slots_(other.slots_) {}

RunningMarker::~RunningMarker() {
  if (entries_ != nullptr) ::munmap(entries_, slots_ * sizeof(Entry));
}

void RunningMarker::Started(uint32_t slot, const Attempt& attempt) {
  if (entries_ == nullptr) return;
  Entry& entry = entries_[slot];
  entry.client = attempt.client.value;
  entry.epoch = attempt.fence.epoch;
  // The counter makes the entry valid, so it must become visible last. The page survives the
  // process in the kernel's cache.
  std::atomic_ref<uint64_t>(entry.counter).store(attempt.fence.counter, std::memory_order_release);
}

void RunningMarker::Finished(uint32_t slot) {
  if (entries_ == nullptr) return;
  std::atomic_ref<uint64_t>(entries_[slot].counter).store(0, std::memory_order_release);
}

}  // namespace macaw::worker
