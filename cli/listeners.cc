#include "cli/listeners.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/process/callers.h"
#include "cli/process/kept_places.h"
#include "cli/process/notify.h"
#include "cli/standing/page_address.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/status.h"
#include "proto/wire/address.h"
#include "server/journal/recovery.h"

namespace macaw::cli {
namespace {

std::string ListenAt(const Config& config, const ServerArguments& arguments) {
  if (!arguments.listen.empty()) return arguments.listen;
  std::string listen = config.node.server.listen;
  if (arguments.by_hand() && arguments.resume) listen = ListenAgain(arguments.run_dir, listen);
  return listen.empty() ? "127.0.0.1:0" : listen;
}

// Announces the address to dial, to the parent process or to the user.
void Announce(const std::string& address, int ready_fd) {
  const std::string line = absl::StrCat(address, "\n");
  if (ready_fd < 0) {
    std::cout << "listening on " << line << std::flush;
    return;
  }
  [[maybe_unused]] const ssize_t ignored = ::write(ready_fd, line.data(), line.size());
  ::close(ready_fd);
}

// The most clients that a part may have. The size of a cohort varies if each client is drawn on its
// own; twice the mean plus a thousand is more than any draw.
uint64_t MostClientsAPart(const RunPlan& run) {
  const double asked = static_cast<double>(run.cohort.size) * run.cohort.over_selection;
  return 1000 + 2 * static_cast<uint64_t>(std::min(asked, 1e15));
}

// Starts to answer the calls of the fleet.
absl::StatusOr<std::unique_ptr<wire::FleetServer>> AnswerFleet(
    const wire::ServerOptions& options, std::unique_ptr<wire::Listener> listener,
    const ServerArguments& arguments, fleet::FleetHandler& handler) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<wire::FleetServer> fleet,
                         wire::FleetServer::Start(options, std::move(listener), handler));
  if (arguments.by_hand()) {
    MACAW_RETURN_IF_ERROR(
        AtomicWriteFile(AddressFile(arguments.run_dir), absl::StrCat(fleet->address(), "\n")));
  }
  Announce(fleet->address(), arguments.ready_fd);
  NotifyManager("READY=1");
  return fleet;
}

// Starts to answer operators: in the run's folder, unless the configuration says where. A folder in
// which no socket can be made (its path is too long, or the file system has none) does without.
absl::StatusOr<std::unique_ptr<wire::AdminServer>> ListenToOperators(
    const server::ServerConfig& config, const ServerArguments& arguments, const Doorkeeper& door,
    server::Coordinator& coordinator) {
  const std::string file = OperatorsAddressFile(arguments.run_dir);
  std::error_code ignored;
  std::filesystem::remove(file, ignored);  // of an earlier session
  if (config.admin == "off") return nullptr;
  if (!config.admin.empty()) {
    const wire::AdminOptions options{
        .listen = config.admin, .authority = door.authority.get(), .audit = door.audit.get()};
    MACAW_ASSIGN_OR_RETURN(auto admin, wire::AdminServer::Start(options, coordinator.operations()));
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(file, absl::StrCat(admin->address(), "\n")));
    return admin;
  }
  auto admin =
      wire::AdminServer::Start({.listen = absl::StrCat("unix:", arguments.run_dir, "/admin.sock")},
                               coordinator.operations());
  if (admin.ok()) return admin;
  Logger("server").Warning(absl::StrCat("no_operators ", admin.status().message(),
                                        "; server.admin can name another address"));
  return nullptr;
}

absl::StatusOr<std::unique_ptr<http::WebServer>> ListenForBrowsers(
    const server::ServerConfig& config, const ServerArguments& arguments,
    server::Coordinator& coordinator) {
  if (config.http.empty()) return nullptr;
  MACAW_ASSIGN_OR_RETURN(
      const PageAddress page,
      ReadPageAddress(config.http, config.http_token, "server.http", "server.http_token"));
  const http::WebOptions options{.host = page.host,
                                 .port = page.port,
                                 .token = page.token,
                                 .rows = arguments.run_dir + "/metrics.jsonl"};
  MACAW_ASSIGN_OR_RETURN(auto web, http::WebServer::Start(options, coordinator.operations()));
  Logger("server").Info(absl::StrCat("status_page http://", options.host, ":", web->port(), "/"));
  if (arguments.by_hand())
    std::cout << "status page at http://" << options.host << ":" << web->port() << "/" << std::endl;
  return web;
}

}  // namespace

absl::StatusOr<wire::ServerOptions> FleetOptions(const Config& config,
                                                 const ServerArguments& arguments,
                                                 const Doorkeeper& door) {
  wire::ServerOptions options{.listen = ListenAt(config, arguments),
                              .max_part_clients = MostClientsAPart(config.run),
                              .turns = {.at_once = config.node.server.downloads_at_once},
                              .authority = door.authority.get(),
                              .audit = door.audit.get()};
  if (config.node.server.keeps_commits())
    options.partial_uploads = server::UploadsFolder(arguments.run_dir);
  if (door.authority == nullptr && arguments.by_hand() && !wire::IsPrivate(options.listen)) {
    std::cout << "connections are not encrypted, and every user of this machine may join: "
              << "--authority (made by `macaw pki init`) changes both" << std::endl;
  }
  if (!arguments.callers.empty()) {
    MACAW_ASSIGN_OR_RETURN(Callers callers, Callers::Read(arguments.callers));
    options.identify = [callers = std::move(callers)](absl::string_view token) {
      return callers.Identify(token);
    };
  }
  return options;
}

absl::StatusOr<std::unique_ptr<Listeners>> StartToAnswer(const Config& config,
                                                         const ServerArguments& arguments,
                                                         const Doorkeeper& door,
                                                         const wire::ServerOptions& fleet_options,
                                                         std::unique_ptr<wire::Listener> listener,
                                                         server::Coordinator& coordinator) {
  auto listeners = std::make_unique<Listeners>();
  server::ServerConfig own = config.node.server;
  if (!arguments.admin.empty()) own.admin = arguments.admin;
  if (!arguments.http.empty()) own.http = arguments.http;
  if (!arguments.http_token.empty()) own.http_token = arguments.http_token;
  MACAW_ASSIGN_OR_RETURN(listeners->admin, ListenToOperators(own, arguments, door, coordinator));
  MACAW_ASSIGN_OR_RETURN(listeners->web, ListenForBrowsers(own, arguments, coordinator));
  fleet::FleetHandler* handler = &coordinator;
  if (door.authority != nullptr) {
    listeners->paced = std::make_unique<server::PacedCalls>(coordinator);
    handler = listeners->paced.get();
  }
  MACAW_ASSIGN_OR_RETURN(listeners->fleet,
                         AnswerFleet(fleet_options, std::move(listener), arguments, *handler));
  return listeners;
}

void CloseWithin(Duration patience, std::unique_ptr<Listeners> listeners, int code) {
  auto closed = std::make_shared<std::promise<void>>();
  std::future<void> over = closed->get_future();
  // The thread gets a plain pointer: if the thread cannot be started, an owner in its arguments
  // would close the server here.
  Listeners* const open = listeners.release();
  try {
    std::thread([open, closed] {
      delete open;
      closed->set_value();
    }).detach();
    if (over.wait_for(patience) == std::future_status::ready) return;
  } catch (const std::system_error&) {  // no thread could be started
  }
  Logger("server").Warning("connections_left_open");
  std::_Exit(code);
}

}  // namespace macaw::cli
