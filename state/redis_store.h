#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/digest.h"
#include "state/client_state_store.h"
#include "state/redis_pool.h"

namespace macaw::state {

// States in a Redis, shared by the workers of many hosts. A version is one or more strings of at
// most 1 MiB; the first, which has the header, is written last. Keys: state/README.md. What a
// version outlasts is what Redis is configured to keep (appendonly); a Redis that comes back empty
// gives kNotFound, and nothing starts afresh. Every call waits out a Redis that is restarted or
// hangs, for as long as the pool's patience.
class RedisStateStore final : public ClientStateStore {
 public:
  // `run` names the run: several may share a Redis. Refuses one that may evict what it holds.
  static absl::StatusOr<std::unique_ptr<RedisStateStore>> Open(RedisPool::Options options,
                                                               StateSchema schema,
                                                               const Digest& run);

  absl::Status PutBlob(const Attempt& version, BlobPtr blob) override;
  absl::StatusOr<BlobPtr> GetBlob(const Attempt& version) const override;
  absl::Status PutBlobs(std::span<const NamedBlob> blobs) override;
  std::vector<absl::StatusOr<BlobPtr>> GetBlobs(std::span<const Attempt> versions) const override;
  absl::StatusOr<bool> Contains(const Attempt& version) const override;
  absl::Status Flush() override { return absl::OkStatus(); }  // Put has waited for the answer
  absl::Status Delete(std::span<const Attempt> versions) override;
  absl::Status ForEach(const std::function<void(const Attempt&)>& visit) const override;

 private:
  RedisStateStore(RedisPool::Options options, StateSchema schema, const Digest& run);
  // Of the strings of a version, the one with the header first.
  std::vector<std::string> KeysOf(const Attempt& version) const;
  // A version from the replies to a GET of each of its keys.
  absl::StatusOr<BlobPtr> Assemble(const Attempt& version,
                                   std::span<const RedisReplyPtr> replies) const;
  // How many versions go into one pipeline.
  size_t Together() const;

  mutable RedisPool pool_;
  const std::string prefix_;
  const uint64_t bytes_;  // of every version
};

}  // namespace macaw::state
