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

// The bytes of one version (blob.h), shared with whoever still reads them.
using BlobPtr = std::shared_ptr<const AlignedBuffer>;

// One version of one client's state: read-only views, parallel to the schema, that live as long as
// this does. Cheap to copy.
struct ClientState {
  std::vector<ConstVectorView> items;
  BlobPtr keep_alive;
};

// A version by name and bytes.
struct NamedBlob {
  Attempt version;
  BlobPtr blob;
};

struct VersionHash {
  size_t operator()(const Attempt& version) const {
    return absl::HashOf(version.client, version.fence);
  }
};

// Keeps client states between rounds. A version is named by the attempt that made it, is written
// once and never changes; which version of a client is current is the server's knowledge, not the
// store's. So a state whose contribution was not accepted is simply never named again, and a round
// that is run anew starts from what it started from before.
//
// A store serves one run: its schema is fixed, and no two versions share a fence. Thread-safe.
class ClientStateStore {
 public:
  explicit ClientStateStore(StateSchema schema) : schema_(std::move(schema)) {}
  virtual ~ClientStateStore() = default;
  const StateSchema& schema() const { return schema_; }

  // Stores the version. From then on every process that shares the store can read it; it outlasts
  // what the back end promises to outlast once Flush has returned. Storing the same bytes again is
  // a success (a retry), other bytes under a used name an error. Errors: kInvalidArgument (vectors
  // do not fit the schema), kAlreadyExists, kResourceExhausted (no room), and what the system
  // reports.
  absl::Status Put(const Attempt& version, std::span<const ConstVectorView> items);

  // Reads it back. kNotFound when there is no such version, kDataLoss when it is damaged or belongs
  // to another client or schema; both name client and version. Never a fresh start: the caller
  // knows which clients are new.
  absl::StatusOr<ClientState> Get(const Attempt& version) const;

  // The same in two steps, for those who encode and decode elsewhere (blob.h).
  virtual absl::Status PutBlob(const Attempt& version, BlobPtr blob) = 0;
  virtual absl::StatusOr<BlobPtr> GetBlob(const Attempt& version) const = 0;

  // Many at once, which is one round trip where a store is far away. The first error of a Put ends
  // it, and what was put before stays; reads are parallel to `versions`, each with its own error.
  virtual absl::Status PutBlobs(std::span<const NamedBlob> blobs);
  virtual std::vector<absl::StatusOr<BlobPtr>> GetBlobs(std::span<const Attempt> versions) const;

  virtual absl::StatusOr<bool> Contains(const Attempt& version) const = 0;

  // Makes everything that this object has put durable, in one go: the fence before a commit.
  virtual absl::Status Flush() = 0;

  // Forgets versions, on the server's word that neither its index nor a checkpoint nor a live lease
  // names them, and that every attempt up to the latest of them has ended: nobody puts a version
  // with an earlier fence any more. States already read stay valid. A version that is not there
  // counts as deleted.
  virtual absl::Status Delete(std::span<const Attempt> versions) = 0;

  // Calls `visit` with every version that is here, damaged contents included, in no order that
  // means anything.
  virtual absl::Status ForEach(const std::function<void(const Attempt&)>& visit) const = 0;

 private:
  const StateSchema schema_;
};

}  // namespace macaw::state
