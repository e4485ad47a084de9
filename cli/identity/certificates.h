#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "identity/node_files.h"

namespace macaw::cli {

// When a certificate is looked at again, and which failures are told in the log. One thread.
//
// Sooner where little is left, but not without a pause: if the server's clock is slow, a new
// certificate ends no later than the old one, and is due at once. When it has ended, pauses double
// up to an hour. Failures are told as an outage of a server is: at once, and then at intervals
// that double from ten seconds up to an hour.
class RenewalPace {
 public:
  struct Left {
    absl::Duration left = absl::ZeroDuration();  // until the certificate ends
    absl::Duration lifetime;
  };
  struct Next {
    absl::Duration pause;
    bool tell = false;
  };
  // `renewed`: what was due, or nothing was.
  Next After(bool renewed, const Left& left);

 private:
  absl::Duration ended_ = absl::ZeroDuration();  // the last pause after the end
  absl::Duration interval_ = absl::ZeroDuration(), untold_ = absl::ZeroDuration();
};

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
