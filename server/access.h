#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "proto/fleet/caller.h"

namespace macaw::server {

// The calls of the fleet's API.
enum class Call : uint8_t {
  kHello,
  kRegister,
  kLease,
  kHeartbeat,
  kCommit,
  kRelease,
  kOffer,
  kDownload,
};

// The owner of the name or session in a call, as seen from the caller.
enum class Whose : uint8_t {
  kNobodys,  // no session, or one that is not known (any more)
  kOwn,      // the caller's own
  kAnothers,
};

// Checks the call against the one table of what each role may do, in access.cc. Returns OK, or
// kPermissionDenied with a message that says what to do.
absl::Status CheckAccess(const fleet::Caller& caller, Call call, Whose whose);

}  // namespace macaw::server
