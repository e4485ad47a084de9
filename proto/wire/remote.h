#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/token_bucket.h"
#include "identity/node_files.h"
#include "proto/fleet/link.h"
#include "proto/wire/download_turns.h"
#include "proto/wire/open_downloads.h"

namespace macaw::identity {
class Audit;
class Authority;
struct Invite;
}  // namespace macaw::identity

// The fleet API over gRPC. Only this folder knows gRPC and generated protobuf types.
namespace macaw::wire {

class Listener;

// How many calls one caller may make. A worker with the smallest rounds makes some hundred calls a
// second over TLS.
inline constexpr Allowance kCallsOfName{.every = std::chrono::microseconds(500), .burst = 10'000};

// "unix:/path/to/socket" or "host:port" (":0" picks a free port).
struct ServerOptions {
  std::string listen;
  // Blobs up to this size ride inside a message; over TCP, those that the server sends only up to
  // 64 KiB, and those of a client up to what its connection moves in some seconds.
  uint64_t max_inline_bytes = 1 << 20;
  uint64_t max_blob_bytes = uint64_t{4} << 30;
  uint64_t upload_budget_bytes = uint64_t{8} << 30;  // all uploads in memory at once; beyond: busy
  // The same for uploads that are offered before there is a session.
  uint64_t population_budget_bytes = uint64_t{128} << 20;
  // Total size of the commits that are read at once. A larger commit is read alone. Beyond: busy.
  uint64_t intake_bytes = uint64_t{256} << 20;
  uint64_t max_part_clients = uint64_t{1} << 20;  // a part that names more is refused unread
  DownloadLimits downloads;
  TurnLimits turns;                     // of large downloads
  Duration max_poll = FromSeconds(60);  // a longer wait for work is cut to this
  bool share_memory = true;  // on a private socket: blobs beyond inline are mapped, not sent
  // The caller with this token ("": the call has none). Never null. Called on RPC threads. Default:
  // every caller is a node, under any name.
  std::function<fleet::CallerPtr(absl::string_view token)> identify;
  // With an authority, a TCP address is served over TLS, callers are known by their certificates,
  // and nodes may enrol. Must outlive the server. Without one, only a Unix socket or a loopback
  // address may be served.
  identity::Authority* authority = nullptr;
  identity::Audit* audit = nullptr;  // told of every refused call, if there is an authority
  // Calls of one certificate's name. Beyond: its connections are cut.
  Allowance calls_of_name = kCallsOfName;
  // Over TCP: a folder for uploads that are not complete, so that the next server with this folder
  // continues with them. "": they are in memory only.
  std::string partial_uploads;
};

class FleetServer {
 public:
  // Binds the address: a caller waits until a server is started there. The error names the address
  // ("port in use", ...). A server that binds before it opens a run's folder leaves the folder as
  // it was when another program has the port.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const ServerOptions& options);
  // Serves `handler`, which must outlive it, at an address that was bound with these options.
  static absl::StatusOr<std::unique_ptr<FleetServer>> Start(const ServerOptions& options,
                                                            std::unique_ptr<Listener> listener,
                                                            fleet::FleetHandler& handler);
  // Both.
  static absl::StatusOr<std::unique_ptr<FleetServer>> Start(const ServerOptions& options,
                                                            fleet::FleetHandler& handler);
  virtual ~FleetServer() = default;         // stops accepting, cancels what is open, waits
  virtual std::string address() const = 0;  // for clients to dial, with the real port
};

struct ClientOptions {
  std::string server;                        // as ServerOptions::listen
  Duration call_timeout = FromSeconds(20);   // every call but a long poll and bulk data
  Duration stall_timeout = FromSeconds(30);  // bulk data: no chunk for this long
  bool share_memory = true;                  // as ServerOptions::share_memory
  std::string token;                         // identifies the caller; empty: none is sent
  // The files with which the caller shows who it is and knows the server, over TLS. Without them,
  // only a Unix socket or a loopback address is dialled, in plain text.
  std::optional<identity::IdentityFiles> identity;
  // The same folder for downloads that are not complete.
  std::string partial_downloads;
  // The most bytes a second that this end sends and receives, on the average of some seconds. Only
  // bulk data waits. 0: no limit.
  uint64_t max_upload = 0, max_download = 0;
};

// Connects at the first call, so only Hello shows whether a server is there. Uploads and downloads
// resume at the last good offset.
absl::StatusOr<std::unique_ptr<fleet::FleetLink>> Dial(const ClientOptions& options);

// Gets a node's first certificate: makes a key in `files`, unless there is one, asks the server for
// a certificate and writes it and the authority's. Refuses a server of another authority than the
// invite's.
absl::Status Enrol(const std::string& server, const identity::Invite& invite,
                   const identity::IdentityFiles& files);
// Asks for a later certificate and replaces the one in `files`.
absl::Status RenewCertificate(const std::string& server, const identity::IdentityFiles& files);

}  // namespace macaw::wire
