#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "worker/kept_bytes.h"

namespace macaw::worker {

// A small file that says which attempts are being trained right now. It survives when the process
// crashes or is killed. The next process of the same name reports these attempts to the server, so
// a client that kills every worker is found by name. Each slot writes its own entry, without locks
// and system calls.
class RunningMarker {
 public:
  // With an empty folder name the marker records nothing.
  static absl::StatusOr<RunningMarker> Open(const std::string& folder, const std::string& worker,
                                            uint32_t slots);

  // What the former process of this name was training when it died.
  const std::vector<Attempt>& died_running() const { return died_running_; }

  // Of a slot below `slots`; others are not recorded.
  void Started(uint32_t slot, const Attempt& attempt);
  void Finished(uint32_t slot);

 private:
  struct Entry {
    uint64_t client = 0;
    uint64_t counter = 0;  // 0: idle
    uint64_t epoch = 0;
  };
  RunningMarker() = default;
  // Null: it is not recorded.
  Entry* At(uint32_t slot) {
    if (!file_.has_value() || slot >= file_->bytes().size() / sizeof(Entry)) return nullptr;
    return reinterpret_cast<Entry*>(file_->bytes().data()) + slot;
  }

  std::vector<Attempt> died_running_;
  std::optional<KeptBytes> file_;  // none: nothing is recorded
};

}  // namespace macaw::worker
