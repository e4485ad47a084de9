#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "cli/identity/certificates.h"
#include "cli/server_arguments.h"
#include "core/clock.h"
#include "proto/http/web_server.h"
#include "proto/wire/admin.h"
#include "proto/wire/listener.h"
#include "proto/wire/remote.h"
#include "server/coordinator.h"
#include "server/paced_calls.h"

// Who is answered while a run goes on: its fleet, operators, browsers.
namespace macaw::cli {

struct Listeners {
  std::unique_ptr<server::PacedCalls> paced;  // what `fleet` calls over TLS; else null
  std::unique_ptr<wire::FleetServer> fleet;
  std::unique_ptr<wire::AdminServer> admin;  // may be null
  std::unique_ptr<http::WebServer> web;      // may be null
};

// How the fleet is answered. `door` must outlive the server.
absl::StatusOr<wire::ServerOptions> FleetOptions(const Config& config,
                                                 const ServerArguments& arguments,
                                                 const Doorkeeper& door);

// Answers everybody, the fleet last, which connects to `listener` (FleetServer::Bind). Tells the
// parent process, or the user, and the service manager.
absl::StatusOr<std::unique_ptr<Listeners>> StartToAnswer(const Config& config,
                                                         const ServerArguments& arguments,
                                                         const Doorkeeper& door,
                                                         const wire::ServerOptions& fleet_options,
                                                         std::unique_ptr<wire::Listener> listener,
                                                         server::Coordinator& coordinator);

// Closes the connections after everything is on disk and the workers have been told. Closing is a
// courtesy: the process must end even if a peer holds a connection open, or a library cannot start
// a thread any more. If it takes longer than `patience`, ends the process with `code`.
void CloseWithin(Duration patience, std::unique_ptr<Listeners> listeners, int code);

}  // namespace macaw::cli
