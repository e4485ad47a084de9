#include "server/base_file.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/safetensors.h"

namespace macaw::server {
namespace {

constexpr char kDigestKey[] = "digest";

// The digest that the file names; nothing: it names none, or is no such file.
std::optional<Digest> DigestIn(const std::string& path) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return std::nullopt;
  const auto text = file->metadata().find(kDigestKey);
  if (text == file->metadata().end()) return std::nullopt;
  const absl::StatusOr<Digest> digest = Digest::FromHex(text->second);
  return digest.ok() ? std::optional(*digest) : std::nullopt;
}

}  // namespace

std::string BaseFileIn(const std::string& run_dir) { return run_dir + "/base.safetensors"; }

bool IsKeptBase(const std::string& path) { return DigestIn(path).has_value(); }

absl::Status CheckBaseFile(const std::string& run_dir, bool resume) {
  const std::string path = BaseFileIn(run_dir);
  if (!FileExists(path) || IsKeptBase(path)) return absl::OkStatus();
  if (resume && !SafetensorsFile::Open(path).ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path,
      " is no file of a run, and a run with frozen tensors keeps them under that name: move it "
      "elsewhere (model.init may name it there)"));
}

absl::Status KeepBaseFile(const std::string& run_dir, const SplitModel& split) {
  const std::string path = BaseFileIn(run_dir);
  const Digest& digest = split.base().digest;
  if (FileExists(path) && DigestIn(path) == digest) return absl::OkStatus();
  return WriteModel(path, split.base_view(), {{kDigestKey, digest.Hex()}});
}

}  // namespace macaw::server
