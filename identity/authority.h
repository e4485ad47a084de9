#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/clock.h"
#include "identity/audit.h"
#include "identity/certificate.h"
#include "identity/chained_log.h"
#include "identity/invite.h"
#include "identity/key.h"
#include "identity/node_files.h"
#include "identity/registry.h"
#include "identity/signed_head.h"

namespace macaw::identity {

// The lifetimes of what an authority signs.
inline constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3650);
inline constexpr absl::Duration kServerLifetime = absl::Hours(24 * 90);
inline constexpr absl::Duration kNodeLifetime = absl::Hours(24 * 30);
inline constexpr absl::Duration kInviteLifetime = absl::Hours(24);
// How long after its end a certificate may still be renewed, and do nothing else.
inline constexpr absl::Duration kRenewalGrace = absl::Hours(24 * 90);
// Certificates begin so long before they are made: a clock may be slow by as much.
inline constexpr absl::Duration kBackdated = absl::Hours(24);

// Whether a certificate should be renewed: less than a third of its lifetime is left.
bool IsDue(const Certificate& certificate, absl::Time now);

struct NewNode {
  Grant grant;
  absl::Duration lifetime = kNodeLifetime;    // of its certificates
  absl::Duration open_for = kInviteLifetime;  // how long the invite may be used
};

// From the name of a client to that of the node to which it was entered.
using ClientOwners = absl::flat_hash_map<std::string, std::string>;

// The authority of a fleet: a folder with its key, the server's certificate, and a registry of the
// nodes. A server and any number of `macaw pki` processes may use it at once. Thread-safe.
//
//   authority.key, authority.crt   signs; the certificate is what nodes trust
//   server.key, server.crt         the server's
//   registry.jsonl                 who was invited, enrolled, renewed and revoked (ChainedLog)
//   audit.jsonl                    what the server refused (identity/audit.h)
class Authority {
 public:
  // Makes the folder's files. kAlreadyExists when there is an authority: a new one would make all
  // its nodes strangers.
  static absl::Status Create(const std::string& folder, const std::string& name, absl::Time now);
  // kDataLoss: the registry is damaged, or lacks lines that were signed.
  static absl::StatusOr<std::unique_ptr<Authority>> Open(const std::string& folder);

  const Certificate& certificate() const { return certificate_; }
  const PrivateKey& key() const { return key_; }
  // With which a server shows who it is.
  const IdentityFiles& server_files() const { return server_files_; }

  // Returns the code of the invite. A further invite for a name replaces the one before. The node's
  // certificate, role and clients stay as they are until the invite is used.
  absl::StatusOr<std::string> InviteNode(const NewNode& node, absl::Time now);
  // The certificate for an invite's secret. It can be used once, and again for the same key as long
  // as the invite is the node's newest: an answer may be lost on the way.
  absl::StatusOr<Certificate> Enrol(const Invite& invite, absl::string_view request,
                                    absl::Time now);
  // Whether the bearer of this certificate (PEM) may renew it: it has not ended more than
  // kRenewalGrace ago, and is for the key with which its node enrolled. The registry need not know
  // it: one that was restored from a backup lacks the newest. kUnauthenticated with the reason.
  absl::Status CheckMayRenew(absl::string_view certificate, absl::Time now);
  // A later certificate for the same subject. `current` may be renewed. kFailedPrecondition
  // when it is not due, kUnavailable when the node was given one a moment ago.
  absl::StatusOr<Certificate> Renew(const Certificate& current, absl::string_view request,
                                    absl::Time now);
  // Gives an enrolled node other clients, from its next registration on. No file of it changes.
  absl::Status Assign(const std::string& name, const std::vector<std::string>& owns, bool owns_any,
                      absl::Time now);
  absl::Status Revoke(const std::string& name, const std::string& why, absl::Time now);

  // Who presents this certificate (PEM). kUnauthenticated with the reason when nobody should
  // believe it (StandingOf says what its bearer has proven all the same). Sees at once what another
  // process has entered in the registry.
  absl::StatusOr<std::shared_ptr<const Grant>> Identify(absl::string_view certificate,
                                                        absl::Time now);
  absl::StatusOr<absl::btree_map<std::string, NodeRecord>> Nodes();  // by their names
  // Changes when the registry has changed, by whichever process.
  uint64_t Changes();
  // The nodes to which clients were entered, by the clients' names; without revoked nodes. If a
  // client was entered to several nodes, it is the first of them by name.
  absl::StatusOr<std::shared_ptr<const ClientOwners>> Owners();

  // Signs a new certificate for the server when the present one is due. True: it has changed.
  absl::StatusOr<bool> RenewServer(absl::Time now);

 private:
  Authority(std::string folder, PrivateKey key, Certificate certificate, ChainedLog registry);
  // kDataLoss: the registry lacks lines that were signed. `is_signed`: read before it.
  absl::Status CheckSigned(const std::optional<SignedHead>& is_signed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reads what was added to the registry, or all of it when the file was replaced.
  absl::Status ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the registry that is written over in place (cp) is complete. kUnavailable: not yet.
  absl::Status AwaitRestored() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The certificate (PEM), once its signature was found good. Valid until the next call.
  absl::StatusOr<const Certificate*> CheckSignature(absl::string_view certificate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Apply(const LogEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds what `make` returns to the file that has the registry's name.
  absl::Status Enter(absl::FunctionRef<absl::StatusOr<LogEntry>()> make)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  const PrivateKey key_;
  const Certificate certificate_;
  const IdentityFiles server_files_;
  absl::Mutex mutex_;
  ChainedLog log_ ABSL_GUARDED_BY(mutex_);
  struct Restored {
    uint64_t size = 0;
    TimePoint since{};  // it has this size
  };
  // Present while the registry is being written over.
  std::optional<Restored> restored_ ABSL_GUARDED_BY(mutex_);
  Registry registry_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool following_ ABSL_GUARDED_BY(mutex_) = false;  // the lines that Open found are read
  // What Owners() has returned last, and `changes_` at that time. Null: it was not called yet.
  std::shared_ptr<const ClientOwners> owners_ ABSL_GUARDED_BY(mutex_);
  uint64_t owners_at_ ABSL_GUARDED_BY(mutex_) = 0;
  // Certificates that passed the signature check, by their text.
  absl::flat_hash_map<std::string, Certificate> checked_ ABSL_GUARDED_BY(mutex_);
  // And those that did not, with the reason.
  absl::flat_hash_map<std::string, absl::Status> refused_ ABSL_GUARDED_BY(mutex_);
};

// What the bearer of a certificate that Identify refused has proven.
Standing StandingOf(const absl::Status& status);

}  // namespace macaw::identity
