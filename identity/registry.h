#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/digest.h"
#include "identity/certificate.h"
#include "identity/chained_log.h"

namespace macaw::identity {

// Who may present a certificate, and for which clients it speaks.
struct Grant {
  Subject subject;
  std::vector<std::string> owns;  // names of its clients
  bool owns_any = false;          // of any name
};

// What an operator writes for a node's clients: their names; "*" alone: of any name; none: one
// client, named like the node.
void SetClients(std::vector<std::string> clients, Grant& grant);

struct Issued {
  std::string serial;
  absl::Time until;
};

// An invite. It becomes a node's grant when it is used.
struct OpenInvite {
  std::shared_ptr<const Grant> grant;
  absl::Duration lifetime;  // of the certificates
  Digest secret;
  absl::Time until;
  bool used = false;  // the node may come again with the same key until then
};

// What an authority knows of a node.
struct NodeRecord {
  std::shared_ptr<const Grant> grant;  // null before it enrolled
  absl::Duration lifetime;             // of its certificates
  std::optional<OpenInvite> invite;    // the newest one
  Digest key;                          // with which it enrolled
  std::vector<Issued> certificates;    // since it enrolled; all of them are good
  std::optional<std::string> revoked;  // why
};

// The nodes of a fleet, as the lines of a registry tell. A value; the functions beside it make the
// lines.
class Registry {
 public:
  absl::Status Apply(const LogEntry& entry);
  const NodeRecord* Find(absl::string_view name) const;
  // The node whose newest invite this is, whether it was used or not.
  const NodeRecord* FindInvited(const Digest& secret) const;
  const absl::btree_map<std::string, NodeRecord>& nodes() const { return nodes_; }

 private:
  absl::Status ApplyInvited(const LogEntry& entry, NodeRecord& node);
  absl::Status ApplyEnrolled(const LogEntry& entry, NodeRecord& node);

  absl::btree_map<std::string, NodeRecord> nodes_;
  absl::flat_hash_map<Digest, std::string> invited_;  // secret → name
};

LogEntry Invited(const Grant& grant, const Digest& secret, absl::Duration lifetime,
                 absl::Time until, absl::Time now);
LogEntry Enrolled(const Certificate& certificate, absl::Time now);
LogEntry Renewed(const Certificate& certificate, absl::Time now);
// The node has other clients from now on.
LogEntry Assigned(const std::string& name, const std::vector<std::string>& owns, bool owns_any,
                  absl::Time now);
LogEntry Revoked(const std::string& name, const std::string& why, absl::Time now);

}  // namespace macaw::identity
