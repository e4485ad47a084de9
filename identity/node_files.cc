#include "identity/node_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/fd.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/status.h"

namespace macaw::identity {

IdentityFiles IdentityFiles::In(const std::string& folder) {
  return {absl::StrCat(folder, "/node.key"), absl::StrCat(folder, "/node.crt"),
          absl::StrCat(folder, "/authority.crt")};
}

absl::StatusOr<NodeIdentity> ReadIdentity(const IdentityFiles& files) {
  if (!FileExists(files.certificate)) {
    return MissingFile(files.certificate,
                       absl::StrCat("there is no ", files.certificate,
                                    ": this node has not enrolled yet (macaw-worker enrol)"));
  }
  struct stat info {};
  if (::stat(files.key.c_str(), &info) == 0 && (info.st_mode & S_IROTH) != 0) {
    Logger("identity")
        .Warning(absl::StrCat("key_is_open ", files.key,
                              " can be read by every user of this machine: chmod 600"));
  }
  MACAW_ASSIGN_OR_RETURN(const std::string key_pem, ReadFile(files.key));
  MACAW_ASSIGN_OR_RETURN(const std::string certificate_pem, ReadFile(files.certificate));
  MACAW_ASSIGN_OR_RETURN(const std::string authority_pem, ReadFile(files.authority));
  absl::StatusOr<PrivateKey> key = PrivateKey::FromPem(key_pem);
  if (!key.ok()) return Annotate(key.status(), files.key);
  absl::StatusOr<Certificate> certificate = Certificate::FromPem(certificate_pem);
  if (!certificate.ok()) return Annotate(certificate.status(), files.certificate);
  absl::StatusOr<Certificate> authority = Certificate::FromPem(authority_pem);
  if (!authority.ok()) return Annotate(authority.status(), files.authority);
  if (!certificate->IsOf(*key)) {
    return absl::FailedPreconditionError(
        absl::StrCat(files.certificate, " is not the certificate of ", files.key));
  }
  return NodeIdentity{*std::move(key), *std::move(certificate), *std::move(authority)};
}

absl::Status WriteSecretFile(const std::string& path, absl::string_view text) {
  const std::string aside = absl::StrCat(path, ".new");
  ::unlink(aside.c_str());
  const Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.open() || !WriteAll(file, BytesOf(text)) || ::fsync(file.get()) != 0 ||
      ::rename(aside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(aside.c_str());
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(error)));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(folder.empty() ? "." : folder);
}

absl::StatusOr<PrivateKey> ReadOrMakeKey(const std::string& path) {
  if (FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(const std::string pem, ReadFile(path));
    absl::StatusOr<PrivateKey> key = PrivateKey::FromPem(pem);
    if (!key.ok()) return Annotate(key.status(), path);
    return key;
  }
  MACAW_ASSIGN_OR_RETURN(PrivateKey key, PrivateKey::Generate());
  MACAW_RETURN_IF_ERROR(WriteSecretFile(path, key.Pem()));
  return key;
}

}  // namespace macaw::identity
