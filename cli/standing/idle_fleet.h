#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "proto/wire/remote.h"

namespace macaw::cli {

// Answers the fleet while no run is open: nodes enrol and renew their certificates, and a node that
// looks for a run is told to come again (UNAVAILABLE). A run's own server takes the address over
// once this is destroyed. `authority` and `audit` may be null, and must outlive it.
class IdleFleet {
 public:
  static absl::StatusOr<IdleFleet> Open(const std::string& listen, identity::Authority* authority,
                                        identity::Audit* audit);

  std::string address() const { return server_->address(); }

 private:
  IdleFleet(std::unique_ptr<fleet::FleetHandler> handler, std::unique_ptr<wire::FleetServer> server)
      : handler_(std::move(handler)), server_(std::move(server)) {}

  std::unique_ptr<fleet::FleetHandler> handler_;
  std::unique_ptr<wire::FleetServer> server_;
};

}  // namespace macaw::cli
