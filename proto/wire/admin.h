#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "identity/node_files.h"
#include "proto/admin/handler.h"
#include "proto/admin/queue_handler.h"

// The operator's protocol over gRPC.
namespace macaw::wire {

struct AdminOptions {
  std::string listen;  // "unix:PATH" or "host:port"
  // With an authority, a TCP address is served over TLS and answers those alone whose certificates
  // say that they are operators; a change is entered under the certificate's name. Must outlive the
  // server. Without one, only a Unix socket or a loopback address may be served.
  identity::Authority* authority = nullptr;
  identity::Audit* audit = nullptr;  // told of every refused call, if there is an authority
};

// What an operator asks for a new node.
struct NodeInvite {
  std::string name, role;            // role: "device" or "worker"
  std::vector<std::string> clients;  // "*": of any name; none: one named like the node
  uint64_t open_for_seconds = 0;     // 0: a day
};
struct InviteCode {
  std::string code, until;  // until: RFC 3339
};

// Serves operators on a listener of its own, together with gRPC's health service.
class AdminServer {
 public:
  // `handler` must outlive the server. It answers for a run, or for the queue of a standing server.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const AdminOptions& options,
                                                            admin::AdminHandler& handler);
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const AdminOptions& options,
                                                            admin::QueueHandler& handler);
  virtual ~AdminServer() = default;         // ends every open call
  virtual std::string address() const = 0;  // to dial, with the real port
};

// An operator's connection. All calls block. One thread at a time.
class AdminClient {
 public:
  // `identity`: the operator's, for a server that asks for one.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Dial(
      const std::string& server, const std::optional<identity::IdentityFiles>& identity);
  virtual ~AdminClient() = default;
  virtual absl::StatusOr<std::string> Status() = 0;  // a JSON object (proto/admin/status.h)
  // Makes up a request id if the change has none.
  virtual absl::StatusOr<admin::Changed> Apply(admin::Change change) = 0;
  // Calls `line` with the number and text of each line of events.jsonl, from a number on (0: from
  // now on), until it returns false or the run has ended.
  virtual absl::Status Watch(uint64_t from,
                             const std::function<bool(uint64_t, const std::string&)>& line) = 0;

  // ---- the nodes of the fleet, at an address that asks for identities
  virtual absl::StatusOr<InviteCode> Invite(const NodeInvite& node) = 0;
  virtual absl::StatusOr<std::string> Revoke(const std::string& node,
                                             const std::string& reason) = 0;

  // ---- a standing server
  // `submission`: `by` is used where the connection does not say it. Makes up a request id if there
  // is none.
  virtual absl::StatusOr<std::string> Submit(admin::Submission submission) = 0;
  virtual absl::StatusOr<std::string> Withdraw(const std::string& run, const std::string& by,
                                               const std::string& reason) = 0;
  virtual absl::StatusOr<std::string> Runs() = 0;  // a JSON array
  // Hands over the files of a run, piece by piece. Ends with the error of `take`, if there is one.
  virtual absl::Status Results(
      const std::string& run,
      const std::function<absl::Status(const admin::ResultPiece&)>& take) = 0;
};

}  // namespace macaw::wire
