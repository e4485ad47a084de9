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

// Whose name or session a call is about.
enum class Whose : uint8_t {
  kNobodys,  // a session that is not known (any more), or none
  kOwn,      // the caller's
  kAnothers,
};

// What each role may do: one table, in access.cc. OK, or kPermissionDenied with what to do.
absl::Status CheckAccess(const fleet::Caller& caller, Call call, Whose whose);

}  // namespace macaw::server
