#include "cli/process/kept_places.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"

namespace macaw::cli {
namespace {

std::string AuthorityFile(const std::string& run_dir) { return run_dir + "/authority-path"; }

// The text of a file of one line; "": there is none.
std::string LineOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

}  // namespace

std::string AddressFile(const std::string& run_dir) { return run_dir + "/address"; }

std::string ListenAgain(const std::string& run_dir, const std::string& configured) {
  if (!configured.empty() && !absl::EndsWith(configured, ":0")) return configured;
  const std::string before = LineOf(AddressFile(run_dir));
  return before.empty() ? configured : before;
}

AuthorityChoice ChooseAuthority(const std::string& run_dir, bool resumes,
                                const std::string& named) {
  if (named == kNoAuthority) return {};
  if (!named.empty() || !resumes) return {.folder = named};
  const std::string before = LineOf(AuthorityFile(run_dir));
  return {.folder = before, .remembered = !before.empty()};
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
