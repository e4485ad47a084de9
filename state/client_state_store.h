#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"

namespace macaw::state {

// The vectors that an algorithm keeps for every client, in its schema's order.
using StateSchema = std::vector<LayoutPtr>;

// One version of one client's state: read-only views, parallel to the schema, that live as long as
// this does. Cheap to copy.
struct ClientState {
  std::vector<ConstVectorView> items;
  std::shared_ptr<const AlignedBuffer> keep_alive;
};

// Keeps client states between rounds. A version is named by the attempt that made it, is written
// once and never changes; which version of a client is current is the server's knowledge, not the
// store's. So a state whose contribution was not accepted is simply never named again, and a round
// that is run anew starts from what it started from before.
//
// A store serves one run: its schema is fixed. Thread-safe.
class ClientStateStore {
 public:
  virtual ~ClientStateStore() = default;

  // Stores the version; when this returns OK, it outlasts whatever the back end promises to
  // outlast. Storing the same bytes again is a success (a retry), other bytes under a used name an
  // error. Errors: kInvalidArgument (vectors do not fit the schema), kAlreadyExists,
  // kResourceExhausted (no room), and what the system reports.
  virtual absl::Status Put(const Attempt& version, std::span<const ConstVectorView> items) = 0;

  // Reads it back. kNotFound when there is no such version, kDataLoss when it is damaged or belongs
  // to another client or schema; both name client and version. Never a fresh start: the caller
  // knows which clients are new.
  virtual absl::StatusOr<ClientState> Get(const Attempt& version) const = 0;

  virtual absl::StatusOr<bool> Contains(const Attempt& version) const = 0;

  // Forgets versions, on the server's word that neither its index nor a checkpoint nor a live lease
  // names them. States already read stay valid. A version that is not there counts as deleted.
  virtual absl::Status Delete(std::span<const Attempt> versions) = 0;
};

}  // namespace macaw::state
