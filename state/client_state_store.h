#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "core/ids.h"
#include "core/vector.h"

namespace macaw::state {

// The vectors that an algorithm keeps for every client, in its schema's order.
using StateSchema = std::vector<LayoutPtr>;

// The encoded form of one version (blob.h), shared with everybody who still reads it.
using BlobPtr = std::shared_ptr<const AlignedBuffer>;

// One version of a client's state: read-only views, parallel to the schema, valid as long as this
// object lives. Cheap to copy.
struct ClientState {
  std::vector<ConstVectorView> items;
  BlobPtr keep_alive;
};

// A version's name and bytes.
struct NamedBlob {
  Attempt version;
  BlobPtr blob;
};

struct VersionHash {
  size_t operator()(const Attempt& version) const {
    return absl::HashOf(version.client, version.fence);
  }
};

// Keeps client states between rounds. A version is named by the attempt that made it; it is written
// once and never changes. The server knows which version of a client is current, the store does
// not. So a state whose contribution was not accepted is never read, and a round that is repeated
// starts from the same states.
//
// A store serves one run: its schema is fixed, and no two versions have the same fence.
// Thread-safe.
class ClientStateStore {
 public:
  explicit ClientStateStore(StateSchema schema) : schema_(std::move(schema)) {}
  virtual ~ClientStateStore() = default;
  const StateSchema& schema() const { return schema_; }

  // Stores a version. After that every process that shares the store can read it, and after Flush
  // it is as durable as the back end promises. Storing the same bytes again succeeds (a retry);
  // storing other bytes under the same name is an error. Errors: kInvalidArgument (vectors do not
  // fit the schema), kAlreadyExists, kResourceExhausted (no room), and those of the system.
  absl::Status Put(const Attempt& version, std::span<const ConstVectorView> items);

  // Reads a version. kNotFound if it does not exist; kDataLoss if it is damaged or belongs to
  // another client or schema. Both name the client and the version. A missing state is never
  // replaced by a fresh one: the caller knows which clients are new.
  absl::StatusOr<ClientState> Get(const Attempt& version) const;

  // The same operations on encoded versions (blob.h).
  virtual absl::Status PutBlob(const Attempt& version, BlobPtr blob) = 0;
  virtual absl::StatusOr<BlobPtr> GetBlob(const Attempt& version) const = 0;

  // The same for several versions, with one round trip for a remote store. PutBlobs stops at the
  // first error; what was stored before remains. The results of a read are parallel to `versions`,
  // each with its own error.
  virtual absl::Status PutBlobs(std::span<const NamedBlob> blobs);
  virtual std::vector<absl::StatusOr<BlobPtr>> GetBlobs(std::span<const Attempt> versions) const;

  virtual absl::StatusOr<bool> Contains(const Attempt& version) const = 0;

  // Makes everything that this object has stored durable. Called before a commit.
  virtual absl::Status Flush() = 0;

  // Deletes versions. The server must guarantee that its index, its checkpoints and the live leases
  // do not name them, and that every attempt up to the latest of them has ended, so that nobody
  // stores a version with an earlier fence any more. States already read stay valid. Deleting a
  // version that does not exist succeeds.
  virtual absl::Status Delete(std::span<const Attempt> versions) = 0;

  // Calls `visit` with every version in the store, damaged ones included, in no particular order.
  virtual absl::Status ForEach(const std::function<void(const Attempt&)>& visit) const = 0;

 private:
  const StateSchema schema_;
};

}  // namespace macaw::state
