#include "cli/identity/certificates.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <stop_token>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "core/executor.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/pause.h"
#include "core/shell.h"
#include "core/status.h"
#include "identity/invite.h"
#include "proto/wire/remote.h"

namespace macaw::cli {
namespace {

constexpr absl::Duration kLongest = absl::Hours(1);
constexpr absl::Duration kFirstInterval = absl::Seconds(10);  // between two lines of the log

// A certificate that cannot be read is one that has ended, with a lifetime that nobody knows.
RenewalPace::Left LeftOf(const identity::IdentityFiles& files) {
  const auto own = identity::ReadIdentity(files);
  if (!own.ok()) return {.lifetime = absl::InfiniteDuration()};
  const identity::Validity& validity = own->certificate.validity();
  return {.left = validity.until - absl::Now(),
          .lifetime = validity.until - validity.from - identity::kBackdated};
}

std::function<absl::Status()> ByServer(std::string server, identity::IdentityFiles files) {
  return [server = std::move(server), files = std::move(files)]() -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(const identity::NodeIdentity own, identity::ReadIdentity(files));
    if (!identity::IsDue(own.certificate, absl::Now())) return absl::OkStatus();
    MACAW_RETURN_IF_ERROR(wire::RenewCertificate(server, files));
    Logger("identity").Info("certificate_renewed");
    return absl::OkStatus();
  };
}

std::function<absl::Status()> ByAuthority(identity::Authority& authority) {
  return [&authority]() -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(const bool renewed, authority.RenewServer(absl::Now()));
    if (renewed) Logger("identity").Info("certificate_renewed");
    return absl::OkStatus();
  };
}

}  // namespace

RenewalPace::Next RenewalPace::After(bool renewed, const Left& left) {
  const absl::Duration shortest =
      std::clamp(left.lifetime / 100, absl::Milliseconds(200), absl::Minutes(1));
  Next next{.pause = std::clamp(left.left / 10, shortest, kLongest)};
  if (renewed) {
    *this = {};
    return next;
  }
  if (left.left <= absl::ZeroDuration()) {
    ended_ = std::clamp(2 * ended_, shortest, kLongest);
    next.pause = ended_;
  }
  next.tell = untold_ <= absl::ZeroDuration();
  if (next.tell) {
    interval_ = std::clamp(2 * interval_, kFirstInterval, kLongest);
    untold_ = interval_;
  }
  untold_ -= next.pause;
  return next;
}

CertificateKeeper::CertificateKeeper(identity::Authority& authority)
    : CertificateKeeper(authority.server_files(), ByAuthority(authority)) {}

CertificateKeeper::CertificateKeeper(std::string server, identity::IdentityFiles files)
    : CertificateKeeper(files, ByServer(std::move(server), files)) {}

CertificateKeeper::CertificateKeeper(identity::IdentityFiles files,
                                     std::function<absl::Status()> renew)
    : thread_([files = std::move(files), renew = std::move(renew)](const std::stop_token& stop) {
        NameThisThread("certificate");
        RenewalPace pace;
        RenewalPace::Next next;
        do {
          const absl::Status status = renew();
          next = pace.After(status.ok(), LeftOf(files));
          if (next.tell) {
            Logger("identity")
                .Warning(absl::StrCat("certificate_not_renewed why=", status.message()));
          }
        } while (!PauseUnlessStopped(stop, absl::ToChronoNanoseconds(next.pause)));
      }) {}

namespace {

absl::StatusOr<Doorkeeper> DoorkeeperOf(const std::string& folder) {
  Doorkeeper door;
  MACAW_ASSIGN_OR_RETURN(door.authority, identity::Authority::Open(folder));
  MACAW_ASSIGN_OR_RETURN(
      door.audit, identity::Audit::Open(folder + "/audit.jsonl", {.key = &door.authority->key()}));
  MACAW_RETURN_IF_ERROR(door.authority->RenewServer(absl::Now()).status());
  door.keeper = std::make_unique<CertificateKeeper>(*door.authority);
  return door;
}

}  // namespace

absl::StatusOr<Doorkeeper> OpenDoor(const std::string& folder) {
  if (folder.empty()) return Doorkeeper{};
  absl::StatusOr<Doorkeeper> door = DoorkeeperOf(folder);
  if (door.ok()) return door;
  return absl::UnavailableError(door.status().message());
}

absl::Status EnrolNode(const std::string& server, const std::string& folder,
                       const std::string& code) {
  MACAW_ASSIGN_OR_RETURN(const identity::Invite invite, identity::Invite::FromCode(code));
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  const identity::IdentityFiles files = identity::IdentityFiles::In(folder);
  MACAW_RETURN_IF_ERROR(wire::Enrol(server, invite, files));
  MACAW_ASSIGN_OR_RETURN(const identity::NodeIdentity own, identity::ReadIdentity(files));
  const identity::Certificate& certificate = own.certificate;
  // A node file reads a path from its own folder, wherever that is.
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(folder, error);
  const std::string at = error ? folder : absolute.lexically_normal().string();
  std::cout << "enrolled as " << identity::Name(certificate.subject().role) << " \""
            << certificate.subject().name << "\" of \"" << own.authority.subject().name
            << "\"; the certificate is good until "
            << absl::FormatTime("%Y-%m-%d %H:%M UTC", certificate.validity().until,
                                absl::UTCTimeZone())
            << std::endl;
  if (certificate.subject().role == identity::Role::kOperator) {
    std::cout << "use it with  macaw admin --server ADDRESS --identity " << ForShell(at)
              << std::endl;
  } else {
    std::cout << "it renews itself\nnode file  [node]\n           server = \"" << server
              << "\"\n           identity = \""
              << absl::StrReplaceAll(at, {{"\\", "\\\\"}, {"\"", "\\\""}}) << "\"" << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace macaw::cli
