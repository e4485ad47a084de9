#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

// Copies of an authority's folder. A backup is such a folder itself, without the audit log: any
// command that reads one reads it, too.
namespace macaw::identity {

// Copies the authority into `to`, which does not exist yet or is empty, while servers and `macaw
// pki` may be at work. Returns the number of nodes in it.
absl::StatusOr<uint64_t> BackUp(const std::string& folder, const std::string& to);

struct Restoration {
  uint64_t nodes = 0;
  // Nodes that the backup does not know as revoked, and the registry that was there did. They are
  // revoked again.
  std::vector<std::string> revoked;
  // Lines of the registry that were signed and that neither it nor the backup has.
  uint64_t lost = 0;
};

// Puts the backup into `folder`; servers that are at work see it at once. What can be read of a
// registry that is there is used for its revocations. kFailedPrecondition: the folder belongs to
// another authority, or its registry is whole and has all that the backup has; then nothing is
// changed.
absl::StatusOr<Restoration> Restore(const std::string& backup, const std::string& folder,
                                    absl::Time now);

}  // namespace macaw::identity
