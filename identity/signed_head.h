#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "identity/certificate.h"
#include "identity/chained_log.h"
#include "identity/key.h"

// The chain of a log shows every change but one: lines cut off its end, or the last line changed. A
// file beside the log says how many lines there are and the digest of the last one, signed with the
// authority's key. Whoever changes the log without the key is found out. Whoever can put back an
// older copy of both files is not: keep the head elsewhere (`macaw audit verify --head`).
namespace macaw::identity {

inline constexpr char kHeadSuffix[] = ".head";

struct SignedHead {
  uint64_t lines = 0;
  Digest head;  // of the last of them
};

// Writes the head of what `log` has read and appended to PATH.head.
absl::Status WriteSignedHead(const std::string& path, const ChainedLog& log, const PrivateKey& key);

// What PATH.head says; absent: there is no such file. kDataLoss: it is not signed by `authority`.
absl::StatusOr<std::optional<SignedHead>> ReadSignedHead(const std::string& path,
                                                         const Certificate& authority);

}  // namespace macaw::identity
