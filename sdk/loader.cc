#include "sdk/loader.h"

#include <dlfcn.h>

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "algorithms/around/guard.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/status.h"
#include "sdk/plugin.h"
#include "sdk/rules/load.h"

namespace macaw::sdk {
namespace {

// dlerror's text, with advice if the missing symbol is one of ours.
std::string WhyNotLoaded() {
  const char* text = ::dlerror();
  const std::string why = text == nullptr ? "it cannot be loaded" : text;
  if (!absl::StrContains(why, "undefined symbol")) return why;
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
  void* const library = ::dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return refuse(WhyNotLoaded());
  void* const symbol = ::dlsym(library, "macaw_plugin");
  if (symbol == nullptr) {
    ::dlclose(library);
    return refuse("it is no Macaw plug-in: it has no MACAW_PLUGIN(…)");
  }
  const PluginEntry* const entry = reinterpret_cast<const PluginEntry* (*)()>(symbol)();
  if (entry == nullptr || absl::string_view(entry->build_tag) != MACAW_BUILD_TAG) {
    const std::string theirs = entry == nullptr ? "none" : entry->build_tag;
    ::dlclose(library);
    return refuse("it was built for (", theirs, "), this program is (", MACAW_BUILD_TAG,
                  "): build it again with this release's SDK and its compiler");
  }

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
