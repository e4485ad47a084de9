#pragma once

#include <memory>
#include <string>

#include "state/client_state_store.h"

namespace macaw::state {

// States in one folder, shared by the worker processes of a host: one file a version, in 256
// sub-folders, written aside, synced and renamed. It needs no lock, because files never change and
// no two attempts have one name. A version outlasts a crash of the machine once Put has returned. A
// crash inside Put can leave a file that ends in `.part`; nothing ever reads it.
class DiskStateStore final : public ClientStateStore {
 public:
  // Creates what is missing of the folder.
  static absl::StatusOr<std::unique_ptr<DiskStateStore>> Open(const std::string& folder,
                                                              StateSchema schema);

  absl::Status Put(const Attempt& version, std::span<const ConstVectorView> items) override;
  absl::StatusOr<ClientState> Get(const Attempt& version) const override;
  absl::StatusOr<bool> Contains(const Attempt& version) const override;
  absl::Status Delete(std::span<const Attempt> versions) override;

 private:
  DiskStateStore(std::string folder, StateSchema schema);
  std::string ShardOf(ClientId client) const;
  std::string PathOf(const Attempt& version) const;

  const std::string folder_;
  const StateSchema schema_;
};

}  // namespace macaw::state
