#include "worker/lasting_fault.h"

#include "absl/strings/cord.h"

namespace macaw::worker {
namespace {

// What marks the status of IsLastingFault and of IsLostDevice.
constexpr char kLastingFault[] = "macaw/lasting-fault";
constexpr char kLostDevice[] = "macaw/lost-device";

}  // namespace

absl::Status LastingFault(absl::string_view message) {
  absl::Status status = absl::FailedPreconditionError(message);
  status.SetPayload(kLastingFault, absl::Cord());
  return status;
}

bool IsLastingFault(const absl::Status& status) {
  return status.GetPayload(kLastingFault).has_value();
}

absl::Status DeviceFault(const absl::Status& status, absl::string_view message) {
  return absl::IsUnavailable(status) ? LostDevice(message) : absl::InternalError(message);
}

absl::Status LostDevice(absl::string_view message) {
  absl::Status status = absl::InternalError(message);
  status.SetPayload(kLostDevice, absl::Cord());
  return status;
}

bool IsLostDevice(const absl::Status& status) { return status.GetPayload(kLostDevice).has_value(); }

bool WouldComeAgain(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace macaw::worker
