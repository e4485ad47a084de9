#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/digest.h"
#include "state/client_state_store.h"
#include "state/redis_pool.h"

namespace macaw::state {

// States in a Redis, shared by the workers of many hosts. A version is one or more strings of at
// most 1 MiB; the first, which contains the header, is written last. Keys: state/README.md.
// Durability is what Redis is configured for (appendonly). If a Redis comes back empty, reads fail
// with kNotFound; nothing starts afresh. While Redis restarts or hangs, calls retry for as long as
// the pool's patience.
class RedisStateStore final : public ClientStateStore {
 public:
  // `run` names the run, because several may share a Redis. Refuses a Redis that may evict data.
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
  // The keys of a version's strings; the first is the one with the header.
  std::vector<std::string> KeysOf(const Attempt& version) const;
  // Builds a version from the replies to a GET of each of its keys.
  absl::StatusOr<BlobPtr> Assemble(const Attempt& version,
                                   std::span<const RedisReplyPtr> replies) const;
  // How many versions fit into one pipeline.
  size_t Together() const;

  mutable RedisPool pool_;
  const std::string prefix_;
  const uint64_t bytes_;  // size of every version
};

}  // namespace macaw::state
