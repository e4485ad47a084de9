#include "sdk/loader.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "algorithms/around/guard.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/module.h"
#include "core/status.h"
#include "sdk/plugin.h"
#include "sdk/rules/load.h"

namespace macaw::sdk {
namespace {

// Adds advice where the missing symbol is one of ours.
std::string WhyNotLoaded(absl::string_view why) {
  if (!absl::StrContains(why, "undefined symbol")) return std::string(why);
  return absl::StrCat(why, " (build it against this release's SDK, and link what it uses besides)");
}

}  // namespace

absl::Status Loader::Load(const std::string& path, Catalogue& catalogue) {
  const auto refuse = [&](auto&&... why) {
    return absl::FailedPreconditionError(absl::StrCat("plug-in ", path, ": ", why...));
  };
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return Annotate(file.status(), "plug-in");
  const Digest digest = DigestOf(file->bytes());
  if (rules::IsPython(path)) return LoadPython(path, *file, digest, catalogue);

  // Without a slash, dlopen would search the system's folders.
  std::error_code ignored;
  const std::string absolute = std::filesystem::absolute(path, ignored).string();
  const absl::StatusOr<const PluginEntry*> loaded =
      LoadEntry<PluginEntry>(absolute, "macaw_plugin", MACAW_BUILD_TAG,
                             "it is no Macaw plug-in: it has no MACAW_PLUGIN(…)");
  if (!loaded.ok()) return refuse(WhyNotLoaded(loaded.status().message()));
  const PluginEntry* const entry = *loaded;

  Catalogue extended = catalogue;
  extended.loading_ = entry->name;
  const absl::Status status =
      algorithms::Caught(extended.Whose(), [&] { return entry->contribute(extended); });
  if (!status.ok()) return refuse(status.message());
  extended.loading_.clear();
  extended.plugins_.push_back(absl::StrCat(entry->name, " ", entry->version, " ", digest.Hex()));
  catalogue = std::move(extended);
  return absl::OkStatus();
}

absl::Status Loader::LoadPython(const std::string& path, const MappedFile& file,
                                const Digest& digest, Catalogue& catalogue) {
  const absl::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  const std::string name = std::filesystem::path(path).stem().string();
  Catalogue extended = catalogue;
  extended.loading_ = name;
  const absl::Status status = [&]() -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(std::vector<algorithms::Description> descriptions,
                           rules::Load(path, text));
    for (algorithms::Description& description : descriptions)
      MACAW_RETURN_IF_ERROR(extended.AddAlgorithm(std::move(description)));
    return absl::OkStatus();
  }();
  if (!status.ok())
    return absl::FailedPreconditionError(absl::StrCat("plug-in ", path, ": ", status.message()));
  extended.loading_.clear();
  extended.plugins_.push_back(absl::StrCat(name, " python ", digest.Hex()));
  catalogue = std::move(extended);
  return absl::OkStatus();
}

absl::StatusOr<Catalogue> LoadAll(const std::vector<std::string>& paths) {
  Catalogue catalogue = Catalogue::Builtins();
  for (const std::string& path : paths) MACAW_RETURN_IF_ERROR(Loader::Load(path, catalogue));
  return catalogue;
}

}  // namespace macaw::sdk
