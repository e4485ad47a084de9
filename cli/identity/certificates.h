#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
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
  ~CertificateKeeper();  // stops and joins
  CertificateKeeper(const CertificateKeeper&) = delete;
  CertificateKeeper& operator=(const CertificateKeeper&) = delete;

 private:
  // `renew` renews what is due.
  CertificateKeeper(identity::IdentityFiles files, std::function<absl::Status()> renew);
  void Loop();

  const identity::IdentityFiles files_;
  const std::function<absl::Status()> renew_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The authority of the fleet, and what a server does for it while it runs.
struct Doorkeeper {
  std::unique_ptr<identity::Authority> authority;
  std::unique_ptr<identity::Audit> audit;
  std::unique_ptr<CertificateKeeper> keeper;
};

// `folder`: of the authority; "": there is none.
absl::StatusOr<Doorkeeper> OpenDoor(const std::string& folder);

// `macaw-worker enrol`: gets the first certificate and prints what it says.
absl::Status EnrolNode(const std::string& server, const std::string& folder,
                       const std::string& code);

}  // namespace macaw::cli
