#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw::worker {

// The error of work that would fail in the same way wherever and how often it is tried: the data,
// the configuration or a rule's code is wrong. A worker that meets one ends with exit code 2, since
// its successor would end the same way. Any other error may be gone at the next start.
absl::Status LastingFault(absl::string_view message);
bool IsLastingFault(const absl::Status& status);

// Whether an error with this code is about what was asked for, and not about the moment.
bool WouldComeAgain(const absl::Status& status);

// The error of a device, or of a trainer that has one. With kUnavailable it is lost (device.h):
// this process cannot use it any more, and its successor may.
absl::Status DeviceFault(const absl::Status& status, absl::string_view message);
inline absl::Status DeviceFault(const absl::Status& status) {
  return DeviceFault(status, status.message());
}
absl::Status LostDevice(absl::string_view message);
bool IsLostDevice(const absl::Status& status);

}  // namespace macaw::worker
