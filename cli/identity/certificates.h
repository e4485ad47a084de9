#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "identity/node_files.h"

namespace macaw::cli {

// A thread that renews a certificate before it ends. A server's open connections keep the old one,
// and new ones show the new one within a second. A node makes its next call on a new connection
// (proto/wire/connection.h).
class CertificateKeeper {
 public:
  // Renews a server's certificate, by its own authority.
  explicit CertificateKeeper(identity::Authority& authority);
  // Renews a node's, by asking the server.
  CertificateKeeper(std::string server, identity::IdentityFiles files);

 private:
  // `renew` renews what is due.
  CertificateKeeper(identity::IdentityFiles files, std::function<absl::Status()> renew);

  std::jthread thread_;
};

// The authority of the fleet, and what a server does for it while it runs.
struct Doorkeeper {
  std::unique_ptr<identity::Authority> authority;
  std::unique_ptr<identity::Audit> audit;
  std::unique_ptr<CertificateKeeper> keeper;
};

// `folder`: of the authority; "": there is none. Every error is kUnavailable: a folder that is not
// mounted yet, cannot be read, or waits for a backup is put right without this server, which a
// service manager starts again meanwhile.
absl::StatusOr<Doorkeeper> OpenDoor(const std::string& folder);

// `macaw-worker enrol`: gets the first certificate and prints what it says.
absl::Status EnrolNode(const std::string& server, const std::string& folder,
                       const std::string& code);

}  // namespace macaw::cli
