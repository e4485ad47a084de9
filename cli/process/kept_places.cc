#include "cli/process/kept_places.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

std::string AuthorityFile(const std::string& run_dir) { return run_dir + "/authority-path"; }

// The text of a file of one line.
absl::StatusOr<std::string> LineOf(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

std::string AddressFile(const std::string& run_dir) { return run_dir + "/address"; }
std::string OperatorsAddressFile(const std::string& run_dir) { return run_dir + "/admin-address"; }

std::string ListenAgain(const std::string& run_dir, const std::string& configured) {
  if (!configured.empty() && !absl::EndsWith(configured, ":0")) return configured;
  const absl::StatusOr<std::string> before = LineOf(AddressFile(run_dir));
  return !before.ok() || before->empty() ? configured : *before;
}

absl::StatusOr<AuthorityChoice> ChooseAuthority(const std::string& run_dir, bool resumes,
                                                const std::string& named) {
  if (named == kNoAuthority) return AuthorityChoice{};
  if (!named.empty() || !resumes) return AuthorityChoice{.folder = named};
  const std::string path = AuthorityFile(run_dir);
  absl::StatusOr<std::string> before = LineOf(path);
  if (absl::IsNotFound(before.status())) return AuthorityChoice{};
  if (before.ok() && before->empty()) before = absl::DataLossError(absl::StrCat(path, " is empty"));
  if (before.ok()) return AuthorityChoice{.folder = *std::move(before), .remembered = true};
  return absl::Status(
      before.status().code(),
      absl::StrCat(before.status().message(),
                   ". It names the authority with which the run began: put it right, or name the "
                   "authority with --authority FOLDER; --authority ",
                   kNoAuthority, " goes on without it, unencrypted, for any node"));
}

absl::Status KeepAuthority(const std::string& run_dir, const std::string& folder) {
  std::error_code error;
  if (folder.empty()) {
    std::filesystem::remove(AuthorityFile(run_dir), error);
    return absl::OkStatus();
  }
  const std::filesystem::path whole = std::filesystem::absolute(folder, error).lexically_normal();
  return AtomicWriteFile(AuthorityFile(run_dir), absl::StrCat(whole.string(), "\n"));
}

absl::Status ExplainRemembered(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(),
                   ". The run began with this authority: --authority FOLDER says where it is now, "
                   "--authority ",
                   kNoAuthority, " goes on without it, unencrypted, for any node"));
}

}  // namespace macaw::cli
