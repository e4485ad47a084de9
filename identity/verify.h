#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "identity/certificate.h"

namespace macaw::identity {

enum class Side : uint8_t { kServer, kClient };

// Checks that `authority` signed the certificate for somebody on this side of a connection, and
// that it is valid at `now`. kUnauthenticated with the reason in words; for a time, by how much it
// is off.
absl::Status Verify(const Certificate& certificate, const Certificate& authority, Side side,
                    absl::Time now);
// The first and the last of these checks alone.
absl::Status VerifySignature(const Certificate& certificate, const Certificate& authority,
                             Side side);
absl::Status CheckTime(const Certificate& certificate, absl::Time now);

}  // namespace macaw::identity
