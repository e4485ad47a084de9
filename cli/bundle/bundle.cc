#include "cli/bundle/bundle.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/bundle/portable.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/sha256.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/zip.h"
#include "data/zip_writer.h"

namespace macaw::cli {
namespace {

constexpr size_t kMostManifest = 16U << 20;

std::string Shown(absl::string_view name) {
  return absl::StrCat("\"", EscapeToUtf8(HeadOf(name, 100)), "\"");
}

absl::Status CheckMembers(const data::ZipArchive& archive, uint64_t bytes) {
  std::set<std::string> names;
  uint64_t sum = 0;
  for (const data::ZipMember& member : archive.members()) {
    const auto refuse = [&](auto&&... why) {
      return absl::InvalidArgumentError(absl::StrCat(archive.path(), " is no bundle: its member ",
                                                     Shown(member.name), " ", why...));
    };
    if (!IsSafeName(member.name))
      return refuse("has a name that leaves a folder, or odd characters");
    if (!names.insert(member.name).second) return refuse("is in it twice");
    if (member.method != 0) return refuse("is compressed; macaw bundle stores files as they are");
    // Before anything is unpacked: members that share their bytes would take more than the file.
    if (member.packed > bytes - sum || member.unpacked != member.packed)
      return refuse("has more bytes than the file");
    sum += member.packed;
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const Manifest& manifest, const std::map<std::string, std::string>& files,
                        const std::string& name) {
  const auto refuse = [&](const std::string& file, auto&&... why) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", Shown(file), " ", why...));
  };
  std::set<std::string> listed = {kManifestFile};
  for (const BundledFile& file : manifest.files) {
    const auto found = files.find(file.name);
    if (found == files.end()) return refuse(file.name, "is missing");
    if (!listed.insert(file.name).second) return refuse(file.name, "is listed twice");
    if (found->second.size() != file.bytes) {
      return refuse(file.name, "has ", found->second.size(), " bytes, and ", kManifestFile,
                    " says ", file.bytes);
    }
    if (Sha256Hex(BytesOf(absl::string_view(found->second))) != file.sha256)
      return refuse(file.name, "was changed: its sha256 is not the one of ", kManifestFile);
  }
  for (const auto& [file, content] : files) {
    if (!listed.contains(file))
      return refuse(file, "is in it, and ", kManifestFile, " does not list it");
  }
  for (const char* needed : {"config.toml", "summary.json", "metrics.jsonl", kCrateFile}) {
    if (!listed.contains(needed)) return refuse(needed, "is missing");
  }
  for (const BundledInput& input : manifest.inputs) {
    if (!input.file.empty() && !IsPacked(input.key))
      return refuse(input.file, "is in it for ", Shown(input.key), ", which no bundle has");
    if (!input.file.empty() && !listed.contains(input.file))
      return refuse(input.file, "is missing, which ", Shown(input.key), " names");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsSafeName(absl::string_view name) {
  constexpr size_t kMostBytes = 255;
  if (name.empty() || name.size() > kMostBytes || !IsUtf8(name)) return false;
  const bool odd = std::ranges::any_of(name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == ':';
  });
  if (odd) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  return std::ranges::none_of(
      parts, [](absl::string_view part) { return part.empty() || part == "." || part == ".."; });
}

absl::StatusOr<Bundle> Bundle::Open(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  return Parse(std::move(bytes), path);
}

absl::StatusOr<Bundle> Bundle::Parse(std::string bytes, const std::string& name) {
  Bundle bundle;
  bundle.name_ = name;
  bundle.sha256_ = Sha256Hex(BytesOf(absl::string_view(bytes)));
  const std::string all = bytes;
  MACAW_ASSIGN_OR_RETURN(const data::ZipArchive archive,
                         data::ZipArchive::Parse(std::move(bytes), name));
  MACAW_RETURN_IF_ERROR(CheckMembers(archive, all.size()));
  std::vector<std::string> order;
  for (const data::ZipMember& member : archive.members()) {
    if (member.name == kManifestFile && member.packed > kMostManifest)
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", kManifestFile, " is too large"));
    MACAW_ASSIGN_OR_RETURN(bundle.files_[member.name], archive.Unpack(member));
    order.push_back(member.name);
  }
  const auto manifest = bundle.files_.find(kManifestFile);
  if (manifest == bundle.files_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is no bundle of macaw bundle: it has no ", kManifestFile));
  }
  MACAW_ASSIGN_OR_RETURN(bundle.manifest_, ParseManifest(manifest->second, name));
  MACAW_RETURN_IF_ERROR(CheckFiles(bundle.manifest_, bundle.files_, name));
  // The archive has bytes that no file holds: times, flags, what lies between its members.
  std::vector<data::ZipEntry> entries;
  for (const std::string& file : order) {
    entries.push_back({.name = file, .bytes = BytesOf(absl::string_view(bundle.files_.at(file)))});
  }
  if (!data::IsStoredZip(all, entries)) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " was changed: its files are what they were, but not the archive around them"));
  }
  return bundle;
}

}  // namespace macaw::cli
