#include "identity/authority.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/status.h"
#include "identity/signed_head.h"
#include "identity/verify.h"

namespace macaw::identity {
namespace {

// More certificates than this are not remembered at once: the others are checked again.
constexpr size_t kMaxChecked = 1 << 16;
constexpr size_t kMaxRefused = 1 << 12;

// A registry that is written over in place is complete when it has not grown for so long.
constexpr Duration kRestored = std::chrono::seconds(1);

constexpr char kStandingPayload[] = "macaw.identity.standing";

absl::Status WithStanding(absl::Status status, Standing standing) {
  status.SetPayload(kStandingPayload,
                    absl::Cord(standing == Standing::kBanned ? "banned" : "known"));
  return status;
}

std::string KeyFile(const std::string& folder) { return absl::StrCat(folder, "/authority.key"); }
std::string CertificateFile(const std::string& folder) {
  return absl::StrCat(folder, "/authority.crt");
}

std::string RegistryFile(const std::string& folder) {
  return absl::StrCat(folder, "/registry.jsonl");
}

Validity From(absl::Time now, absl::Duration lifetime) {
  return {now - kBackdated, now + lifetime};
}

absl::StatusOr<Certificate> CertifyServer(const Issuer& issuer, const IdentityFiles& files,
                                          absl::Time now) {
  MACAW_ASSIGN_OR_RETURN(const PrivateKey key, ReadOrMakeKey(files.key));
  MACAW_ASSIGN_OR_RETURN(const std::string request, MakeRequest(key));
  MACAW_ASSIGN_OR_RETURN(
      const Certificate certificate,
      Issue(issuer, request, {"server", Role::kServer}, From(now, kServerLifetime)));
  // With the authority's, which a node that enrols must see to compare it with its invite.
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(files.certificate,
                                        absl::StrCat(certificate.Pem(), issuer.certificate.Pem())));
  return certificate;
}

IdentityFiles ServerFiles(const std::string& folder) {
  return {absl::StrCat(folder, "/server.key"), absl::StrCat(folder, "/server.crt"),
          CertificateFile(folder)};
}

// Why a certificate of this authority is not believed. `node`: of its name, may be null.
absl::Status Unknown(const Certificate& certificate, const NodeRecord* node) {
  const std::string whose =
      absl::StrCat("the certificate of \"", certificate.subject().name, "\" ");
  if (node != nullptr && node->revoked.has_value()) {
    return WithStanding(
        absl::UnauthenticatedError(absl::StrCat(whose, "was revoked: ", *node->revoked)),
        Standing::kBanned);
  }
  return WithStanding(absl::UnauthenticatedError(absl::StrCat(
                          whose,
                          "is not in the registry: the node has enrolled again since, or "
                          "another server of this authority signed it")),
                      Standing::kKnown);
}

bool IsEntered(const NodeRecord& node, const Certificate& certificate) {
  return std::ranges::find(node.certificates, certificate.serial(), &Issued::serial) !=
         node.certificates.end();
}

// Each renewal is a line of the registry for good, and an fsync for which the calls of all nodes
// wait. A node whose answer was lost may ask again, but not soon.
absl::Status CheckDue(const Certificate& current, const NodeRecord& node, absl::Time now) {
  // A registry that was restored from before it was signed does not know it: it is good for nothing
  // else.
  if (!IsDue(current, now) && IsEntered(node, current)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the certificate of \"", current.subject().name,
                     "\" is not due: it is renewed in the last third of its time"));
  }
  const absl::Time newest =
      std::ranges::max_element(node.certificates, {}, &Issued::until)->until - node.lifetime;
  if (newest > current.validity().from + kBackdated && now - newest < node.lifetime / 100) {
    return absl::UnavailableError(absl::StrCat(
        "\"", current.subject().name, "\" has just been given a certificate: ", "come again in ",
        absl::FormatDuration(node.lifetime / 100)));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDue(const Certificate& certificate, absl::Time now) {
  const Validity& validity = certificate.validity();
  const absl::Duration lifetime = validity.until - validity.from - kBackdated;
  return validity.until - now < lifetime / 3;
}

absl::Status Authority::Create(const std::string& folder, const std::string& name, absl::Time now) {
  MACAW_RETURN_IF_ERROR(CheckName(name));
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  if (FileExists(CertificateFile(folder))) {
    return absl::AlreadyExistsError(absl::StrCat(
        folder,
        " holds an authority already; with a new one all its nodes would be strangers. "
        "Name another folder"));
  }
  MACAW_ASSIGN_OR_RETURN(const PrivateKey key, ReadOrMakeKey(KeyFile(folder)));
  MACAW_ASSIGN_OR_RETURN(const Certificate certificate,
                         MakeAuthorityCertificate(key, name, From(now, kAuthorityLifetime)));
  MACAW_RETURN_IF_ERROR(CertifyServer({key, certificate}, ServerFiles(folder), now).status());
  MACAW_RETURN_IF_ERROR(ChainedLog::Open(RegistryFile(folder)).status());
  return AtomicWriteFile(CertificateFile(folder), certificate.Pem());  // last: all of it is there
}

absl::StatusOr<std::unique_ptr<Authority>> Authority::Open(const std::string& folder) {
  if (absl::IsNotFound(ReadFile(CertificateFile(folder)).status())) {
    return absl::NotFoundError(
        absl::StrCat(folder, " holds no authority: a new fleet's is made by `macaw pki init --dir ",
                     folder, "`, and `macaw pki restore` puts a fleet's back"));
  }
  MACAW_ASSIGN_OR_RETURN(NodeIdentity own, ReadIdentity({KeyFile(folder), CertificateFile(folder),
                                                         CertificateFile(folder)}));
  // The head comes first. Another process may add lines and sign them meanwhile, and a head that is
  // read later would name lines that were not read.
  MACAW_ASSIGN_OR_RETURN(const std::optional<SignedHead> is_signed,
                         ReadSignedHead(RegistryFile(folder), own.authority));
  MACAW_ASSIGN_OR_RETURN(ChainedLog registry, ChainedLog::Open(RegistryFile(folder)));
  auto authority = std::unique_ptr<Authority>(
      new Authority(folder, std::move(own.key), std::move(own.authority), std::move(registry)));
  absl::MutexLock lock(&authority->mutex_);
  MACAW_RETURN_IF_ERROR(authority->ReadOn());
  MACAW_RETURN_IF_ERROR(authority->CheckSigned(is_signed));
  authority->following_ = true;
  return authority;
}

absl::Status Authority::CheckSigned(const std::optional<SignedHead>& is_signed) const {
  const std::string path = RegistryFile(folder_);
  if (!is_signed.has_value() || is_signed->lines <= log_.lines()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      path, " has ", log_.lines(), " lines, and ", is_signed->lines,
      " were signed: the last ones are lost, and with them what they revoked. `macaw pki restore` "
      "puts a backup back; if this is an older copy on purpose, remove ",
      path, kHeadSuffix));
}

Authority::Authority(std::string folder, PrivateKey key, Certificate certificate,
                     ChainedLog registry)
    : folder_(std::move(folder)),
      key_(std::move(key)),
      certificate_(std::move(certificate)),
      server_files_(ServerFiles(folder_)),
      log_(std::move(registry)) {}

absl::Status Authority::AwaitRestored() {
  const uint64_t size = log_.Size();
  const TimePoint now = SteadyClock().Now();
  if (!restored_.has_value()) {
    Logger("identity")
        .Warning(absl::StrCat("registry_shortened bytes=", size,
                              " nobody is let in until it is whole; `macaw pki restore` puts a "
                              "backup back"));
  }
  if (!restored_.has_value() || restored_->size != size) restored_ = {size, now};
  if (now - restored_->since >= kRestored && log_.EndsWithALine()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(RegistryFile(folder_), " is being written over: wait until it is complete"));
}

absl::Status Authority::ReadOn() {
  const bool replaced = log_.WasReplaced();
  // Half a registry would make strangers of half the nodes.
  if (!replaced && (restored_.has_value() || log_.WasShortened()))
    MACAW_RETURN_IF_ERROR(AwaitRestored());
  if (replaced || restored_.has_value()) {
    Registry fresh;
    MACAW_ASSIGN_OR_RETURN(ChainedLog log, ChainedLog::Open(RegistryFile(folder_)));
    MACAW_RETURN_IF_ERROR(log.ReadOn([&](const LogEntry& entry) { return fresh.Apply(entry); }));
    Logger("identity")
        .Warning(absl::StrCat("registry_replaced lines=", log.lines(), " before=", log_.lines()));
    log_ = std::move(log);
    restored_.reset();
    registry_ = std::move(fresh);
    ++changes_;
  }
  return log_.ReadOn([this](const LogEntry& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    // Another process has entered it, such as `macaw pki`: a server's log tells of it.
    const auto name = entry.details.find("name");
    if (following_ && name != entry.details.end())
      Logger("identity").Info(absl::StrCat("registry ", entry.what, " node=", name->second));
    return Apply(entry);
  });
}

absl::Status Authority::Apply(const LogEntry& entry) {
  ++changes_;
  return registry_.Apply(entry);
}

absl::Status Authority::Enter(absl::FunctionRef<absl::StatusOr<LogEntry>()> make) {
  const absl::Cleanup unlock = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { log_.Unlock(); };
  do {
    // Who restores a registry has the lock of the former one, in which a line would be lost.
    MACAW_RETURN_IF_ERROR(ReadOn());
    MACAW_RETURN_IF_ERROR(log_.Lock());
  } while (log_.WasReplaced());
  return log_.AppendLocked(
      [this](const LogEntry& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS { return Apply(entry); }, make,
      [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        // The change is made, whether its signature can be written or not.
        const absl::Status is_signed = WriteSignedHead(RegistryFile(folder_), log_, key_);
        if (!is_signed.ok()) {
          Logger("identity")
              .Warning(absl::StrCat("cannot_sign_registry why=", is_signed.message()));
        }
      });
}

uint64_t Authority::Changes() {
  absl::MutexLock lock(&mutex_);
  (void)ReadOn();  // its error is each caller's
  return changes_;
}

absl::StatusOr<std::string> Authority::InviteNode(const NewNode& node, absl::Time now) {
  const Subject& subject = node.grant.subject;
  MACAW_RETURN_IF_ERROR(CheckName(subject.name));
  if (subject.role == Role::kServer || subject.role == Role::kAuthority)
    return absl::InvalidArgumentError("invite a device, a worker or an operator");
  if (node.lifetime < absl::Seconds(3) || node.open_for < absl::Seconds(1))
    return absl::InvalidArgumentError("a certificate lives 3 seconds or more, an invite 1 or more");
  MACAW_ASSIGN_OR_RETURN(const Invite invite, Invite::To(certificate_));
  absl::MutexLock lock(&mutex_);
  MACAW_RETURN_IF_ERROR(Enter([&]() -> absl::StatusOr<LogEntry> {
    return Invited(node.grant, invite.SecretDigest(), node.lifetime, now + node.open_for, now);
  }));
  return invite.Code();
}

absl::StatusOr<Certificate> Authority::Enrol(const Invite& invite, absl::string_view request,
                                             absl::Time now) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Certificate> certificate = absl::UnknownError("");
  const absl::Status entered = Enter([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS
                                     -> absl::StatusOr<LogEntry> {
    const Digest secret = invite.SecretDigest();
    const NodeRecord* const node = registry_.FindInvited(secret);
    if (node == nullptr) {
      return absl::UnauthenticatedError(
          "this invite is not known here, or a later one or a revocation has replaced it: ask the "
          "operator for a new one");
    }
    const OpenInvite& open = *node->invite;
    const std::string& name = open.grant->subject.name;
    if (now >= open.until) {
      return absl::UnauthenticatedError(
          absl::StrCat("the invite of \"", name, "\" has run out: ask the operator for a new one"));
    }
    certificate =
        Issue({key_, certificate_}, request, open.grant->subject, From(now, open.lifetime));
    if (!certificate.ok()) return certificate.status();
    if (open.used && certificate->KeyDigest() != node->key) {
      return absl::UnauthenticatedError(
          absl::StrCat("the invite of \"", name,
                       "\" was used already, with another key. If that was not you, revoke it"));
    }
    return Enrolled(*certificate, now);
  });
  MACAW_RETURN_IF_ERROR(entered);
  return certificate;
}

absl::StatusOr<Certificate> Authority::Renew(const Certificate& current, absl::string_view request,
                                             absl::Time now) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Certificate> certificate = absl::UnknownError("");
  const absl::Status entered =
      Enter([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::StatusOr<LogEntry> {
        const NodeRecord* const node = registry_.Find(current.subject().name);
        if (node == nullptr || node->certificates.empty())
          return absl::UnauthenticatedError("the certificate was revoked");
        MACAW_RETURN_IF_ERROR(CheckDue(current, *node, now));
        certificate =
            Issue({key_, certificate_}, request, node->grant->subject, From(now, node->lifetime));
        if (!certificate.ok()) return certificate.status();
        return Renewed(*certificate, now);
      });
  MACAW_RETURN_IF_ERROR(entered);
  return certificate;
}

absl::Status Authority::Assign(const std::string& name, const std::vector<std::string>& owns,
                               bool owns_any, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  return Enter([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::StatusOr<LogEntry> {
    const NodeRecord* const node = registry_.Find(name);
    if (node == nullptr || node->certificates.empty()) {
      return absl::NotFoundError(
          absl::StrCat("no node \"", name, "\" is enrolled (`macaw pki list` names them)"));
    }
    return Assigned(name, owns, owns_any, now);
  });
}

absl::Status Authority::Revoke(const std::string& name, const std::string& why, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  return Enter([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::StatusOr<LogEntry> {
    const NodeRecord* const node = registry_.Find(name);
    if (node == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("no node \"", name, "\" was ever invited (`macaw pki list` names them)"));
    }
    return Revoked(name, why, now);
  });
}

absl::StatusOr<const Certificate*> Authority::CheckSignature(absl::string_view certificate) {
  auto it = checked_.find(certificate);
  if (it != checked_.end()) return &it->second;
  // A stranger calls again and again over one connection: its certificate is checked once.
  if (const auto known = refused_.find(certificate); known != refused_.end()) return known->second;
  absl::StatusOr<Certificate> read = Certificate::FromPem(certificate);
  const absl::Status status = read.ok() ? VerifySignature(*read, certificate_, Side::kClient)
                                        : absl::UnauthenticatedError(read.status().message());
  if (!status.ok()) {
    if (refused_.size() >= kMaxRefused) refused_.clear();
    refused_.emplace(certificate, status);
    return status;
  }
  if (checked_.size() >= kMaxChecked) checked_.clear();
  return &checked_.emplace(certificate, *std::move(read)).first->second;
}

absl::Status Authority::CheckMayRenew(absl::string_view certificate, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  MACAW_RETURN_IF_ERROR(ReadOn());
  MACAW_ASSIGN_OR_RETURN(const Certificate* const known, CheckSignature(certificate));
  const absl::Time until = known->validity().until;
  if (now < known->validity().from || now >= until + kRenewalGrace)
    return WithStanding(CheckTime(*known, now), Standing::kKnown);
  const std::string& name = known->subject().name;
  const NodeRecord* const node = registry_.Find(name);
  if (node == nullptr || node->certificates.empty() || known->KeyDigest() != node->key)
    return Unknown(*known, node);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Grant>> Authority::Identify(absl::string_view certificate,
                                                                 absl::Time now) {
  absl::MutexLock lock(&mutex_);
  MACAW_RETURN_IF_ERROR(ReadOn());
  MACAW_ASSIGN_OR_RETURN(const Certificate* const found, CheckSignature(certificate));
  const Certificate& known = *found;
  if (absl::Status status = CheckTime(known, now); !status.ok())
    return WithStanding(std::move(status), Standing::kKnown);
  const NodeRecord* const node = registry_.Find(known.subject().name);
  if (node != nullptr && IsEntered(*node, known)) return node->grant;
  return Unknown(known, node);
}

Standing StandingOf(const absl::Status& status) {
  const absl::optional<absl::Cord> found = status.GetPayload(kStandingPayload);
  if (!found.has_value()) return Standing::kStranger;
  return *found == "banned" ? Standing::kBanned : Standing::kKnown;
}

absl::StatusOr<absl::btree_map<std::string, NodeRecord>> Authority::Nodes() {
  absl::MutexLock lock(&mutex_);
  MACAW_RETURN_IF_ERROR(ReadOn());
  return registry_.nodes();
}

absl::StatusOr<std::shared_ptr<const ClientOwners>> Authority::Owners() {
  absl::MutexLock lock(&mutex_);
  MACAW_RETURN_IF_ERROR(ReadOn());
  if (owners_ != nullptr && owners_at_ == changes_) return owners_;
  auto owners = std::make_shared<ClientOwners>();
  for (const auto& [name, node] : registry_.nodes()) {
    if (node.grant == nullptr || node.revoked.has_value()) continue;
    for (const std::string& client : node.grant->owns) owners->try_emplace(client, name);
  }
  owners_ = std::move(owners);
  owners_at_ = changes_;
  return owners_;
}

absl::StatusOr<bool> Authority::RenewServer(absl::Time now) {
  MACAW_ASSIGN_OR_RETURN(const NodeIdentity server, ReadIdentity(server_files_));
  if (!IsDue(server.certificate, now)) return false;
  MACAW_RETURN_IF_ERROR(CertifyServer({key_, certificate_}, server_files_, now).status());
  return true;
}

}  // namespace macaw::identity
