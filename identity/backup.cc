#include "identity/backup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/files.h"
#include "core/status.h"
#include "identity/authority.h"
#include "identity/chained_log.h"
#include "identity/node_files.h"
#include "identity/registry.h"
#include "identity/signed_head.h"

namespace macaw::identity {
namespace {

namespace fs = std::filesystem;

constexpr char kRegistry[] = "/registry.jsonl";
constexpr char kStage[] = "/.restore";
// The key comes first and the certificate last: a folder with a certificate is complete.
constexpr const char* kKeys[] = {"/authority.key", "/server.key", "/server.crt", "/authority.crt"};

absl::Status Copy(const std::string& from, const std::string& to) {
  MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(from));
  MACAW_RETURN_IF_ERROR(WriteSecretFile(to, bytes));
  std::error_code error;
  fs::permissions(to, fs::status(from, error).permissions(), error);
  return error ? FileError("cannot set the permissions of", to, error.value()) : absl::OkStatus();
}

// The registry as it is at one moment, and its signed head.
absl::Status CopyRegistry(const std::string& from, const std::string& to) {
  MACAW_ASSIGN_OR_RETURN(ChainedLog log, ChainedLog::Open(from + kRegistry));
  MACAW_RETURN_IF_ERROR(log.Lock());  // until `log` ends
  MACAW_RETURN_IF_ERROR(Copy(from + kRegistry, to + kRegistry));
  const std::string head = absl::StrCat(kRegistry, kHeadSuffix);
  return FileExists(from + head) ? Copy(from + head, to + head) : absl::OkStatus();
}

// Makes the folder, if it is not there, for its user alone.
absl::Status MakePrivate(const std::string& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  fs::permissions(folder, fs::perms::owner_all, error);
  return error ? FileError("cannot set the permissions of", folder, error.value())
               : absl::OkStatus();
}

// What can be read of a registry, up to its first line that is damaged.
struct Readable {
  Registry registry;
  std::vector<Digest> digests;  // of the lines
  uint64_t bytes = 0;           // of them
  uint64_t signed_lines = 0;    // as its head says
  bool whole = false;
};
Readable ReadWhatThereIs(const std::string& folder, const Certificate& authority) {
  Readable found;
  const auto head = ReadSignedHead(folder + kRegistry, authority);
  if (head.ok() && head->has_value()) found.signed_lines = (*head)->lines;
  if (!FileExists(folder + kRegistry)) return found;
  absl::StatusOr<ChainedLog> log = ChainedLog::Open(folder + kRegistry);
  if (!log.ok()) return found;
  const absl::Status read = log->ReadOn([&](const LogEntry& entry) {
    MACAW_RETURN_IF_ERROR(found.registry.Apply(entry));
    found.digests.push_back(entry.line);
    return absl::OkStatus();
  });
  found.bytes = log->bytes();
  found.whole = read.ok() && !found.digests.empty() && found.digests.size() >= found.signed_lines;
  return found;
}

// Keeps others from entering anything in the registry, as long as it lives. Absent: there is none
// that can be opened.
absl::StatusOr<std::optional<ChainedLog>> LockRegistry(const std::string& folder) {
  const std::string path = folder + kRegistry;
  while (FileExists(path)) {
    absl::StatusOr<ChainedLog> log = ChainedLog::Open(path);
    if (!log.ok()) break;
    MACAW_RETURN_IF_ERROR(log->Lock());
    if (!log->WasReplaced()) return *std::move(log);
  }
  return std::nullopt;
}

// Revokes a node of `before`, also one that the authority does not know: whoever has its
// certificate might renew it otherwise, as after the loss of a registry.
absl::Status RevokeAgain(Authority& authority, const std::string& name, const NodeRecord& before,
                         bool known, absl::Time now) {
  if (!known) {
    NewNode node{.grant = {.subject = {.name = name}}, .open_for = absl::Seconds(1)};
    if (before.grant != nullptr) node.grant = *before.grant;
    MACAW_RETURN_IF_ERROR(authority.InviteNode(node, now).status());
  }
  return authority.Revoke(name, *before.revoked, now);
}

// root restores for the user of the folder.
absl::Status GiveTo(const struct stat& owner, const std::string& file) {
  if (::geteuid() != 0 || ::chown(file.c_str(), owner.st_uid, owner.st_gid) == 0)
    return absl::OkStatus();
  return FileError("cannot set the owner of", file);
}

absl::Status CheckSameAuthority(const std::string& backup, const std::string& folder) {
  const std::string there = folder + "/authority.crt";
  if (!FileExists(there)) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::string own, ReadFile(there));
  MACAW_ASSIGN_OR_RETURN(const std::string other, ReadFile(backup + "/authority.crt"));
  if (own == other) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " holds another authority than ", backup,
                   ", and its nodes would be strangers: name another folder"));
}

}  // namespace

absl::StatusOr<uint64_t> BackUp(const std::string& folder, const std::string& to) {
  MACAW_ASSIGN_OR_RETURN(const auto authority, Authority::Open(folder));  // it is whole
  std::error_code error;
  if (fs::exists(to, error) && !fs::is_empty(to, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(to, " is there already: a backup needs a new folder"));
  }
  MACAW_RETURN_IF_ERROR(MakePrivate(to));
  MACAW_RETURN_IF_ERROR(CopyRegistry(folder, to));
  for (const char* file : kKeys) MACAW_RETURN_IF_ERROR(Copy(folder + file, to + file));
  MACAW_ASSIGN_OR_RETURN(const auto copy, Authority::Open(to));
  MACAW_ASSIGN_OR_RETURN(const auto nodes, copy->Nodes());
  return nodes.size();
}

absl::StatusOr<Restoration> Restore(const std::string& backup, const std::string& folder,
                                    absl::Time now) {
  MACAW_RETURN_IF_ERROR(Authority::Open(backup).status());  // it is whole
  MACAW_RETURN_IF_ERROR(CheckSameAuthority(backup, folder));
  MACAW_ASSIGN_OR_RETURN(const std::string pem, ReadFile(backup + "/authority.crt"));
  MACAW_ASSIGN_OR_RETURN(const Certificate authority, Certificate::FromPem(pem));
  // What is entered from now on waits, and goes into the registry that is put in its place.
  MACAW_ASSIGN_OR_RETURN(const std::optional<ChainedLog> locked, LockRegistry(folder));
  const Readable before = ReadWhatThereIs(folder, authority);
  const Readable kept = ReadWhatThereIs(backup, authority);
  // The backup has nothing that the registry, as far as it can be read, has not.
  const bool all_there =
      !before.digests.empty() && before.digests.size() >= kept.digests.size() &&
      std::equal(kept.digests.begin(), kept.digests.end(), before.digests.begin());
  bool keys_there = true;
  for (const char* file : kKeys) keys_there = keys_there && FileExists(folder + file);
  if (all_there && before.whole && keys_there) {
    return absl::FailedPreconditionError(
        absl::StrCat("the registry of ", folder, " is whole and has all ", kept.digests.size(),
                     " lines of the backup: there is nothing to restore"));
  }
  const std::string stage = folder + kStage;
  MACAW_RETURN_IF_ERROR(MakePrivate(folder));
  std::error_code error;
  fs::remove_all(stage, error);
  const absl::Cleanup clean = [&] { fs::remove_all(stage, error); };
  MACAW_RETURN_IF_ERROR(MakePrivate(stage));
  MACAW_ASSIGN_OR_RETURN(std::string lines, ReadFile((all_there ? folder : backup) + kRegistry));
  lines.resize(all_there ? before.bytes : kept.bytes);
  MACAW_RETURN_IF_ERROR(WriteSecretFile(stage + kRegistry, lines));
  for (const char* file : kKeys) MACAW_RETURN_IF_ERROR(Copy(backup + file, stage + file));
  const uint64_t most = std::max(before.digests.size(), kept.digests.size());
  Restoration restored{.lost = before.signed_lines - std::min(before.signed_lines, most)};
  {
    MACAW_ASSIGN_OR_RETURN(const auto opened, Authority::Open(stage));
    MACAW_ASSIGN_OR_RETURN(const auto nodes, opened->Nodes());
    for (const auto& [name, node] : before.registry.nodes()) {
      const auto known = nodes.find(name);
      if (!node.revoked.has_value()) continue;
      if (known != nodes.end() && known->second.revoked.has_value()) continue;
      MACAW_RETURN_IF_ERROR(RevokeAgain(*opened, name, node, known != nodes.end(), now));
      restored.revoked.push_back(name);
    }
    MACAW_ASSIGN_OR_RETURN(const auto all, opened->Nodes());
    restored.nodes = all.size();
    MACAW_ASSIGN_OR_RETURN(ChainedLog log, ChainedLog::Open(stage + kRegistry));
    MACAW_RETURN_IF_ERROR(log.ReadOn([](const LogEntry&) { return absl::OkStatus(); }));
    MACAW_RETURN_IF_ERROR(WriteSignedHead(stage + kRegistry, log, opened->key()));
  }
  struct stat owner {};
  if (::stat(folder.c_str(), &owner) != 0) return FileError("cannot look at", folder);
  const auto move = [&](const std::string& file) -> absl::Status {
    MACAW_RETURN_IF_ERROR(GiveTo(owner, stage + file));
    fs::rename(stage + file, folder + file, error);
    return error ? FileError("cannot write", folder + file, error.value()) : absl::OkStatus();
  };
  for (const char* file : kKeys) {
    if (!FileExists(folder + file)) MACAW_RETURN_IF_ERROR(move(file));
  }
  const std::string head = absl::StrCat(kRegistry, kHeadSuffix);
  MACAW_RETURN_IF_ERROR(move(head));
  MACAW_RETURN_IF_ERROR(move(kRegistry));
  MACAW_RETURN_IF_ERROR(SyncDirectory(folder));
  return restored;
}

}  // namespace macaw::identity
