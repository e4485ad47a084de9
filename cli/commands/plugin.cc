#include "cli/commands/plugin.h"

#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/plugin_template.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/status.h"
#include "sdk/loader.h"

namespace macaw::cli {
namespace {

// The name is used for an algorithm, a namespace and file names.
absl::Status CheckName(const std::string& name) {
  bool fits = !name.empty() && name[0] >= 'a' && name[0] <= 'z';
  for (const char c : name) {
    fits = fits && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
  }
  if (fits && name != "macaw") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the name of a plug-in is small letters, digits and _, begins with a letter and "
                   "is not macaw; got \"",
                   name, "\""));
}

absl::Status WriteProject(const std::string& name, const std::string& folder) {
  MACAW_RETURN_IF_ERROR(CheckName(name));
  std::error_code error;
  if (std::filesystem::exists(folder, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(folder, " exists already: choose another folder with --out"));
  }
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const TemplateFile& file : kPluginTemplate) {
    const std::string path =
        absl::StrCat(folder, "/", absl::StrReplaceAll(file.name, {{"NAME", name}}));
    MACAW_RETURN_IF_ERROR(
        AtomicWriteFile(path, absl::StrReplaceAll(file.text, {{"{{name}}", name}})));
    std::cout << path << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

int PluginNew(const std::string& name, const std::string& folder) {
  return Report(WriteProject(name, folder.empty() ? name : folder));
}

int PluginCheck(const std::string& path) {
  const sdk::Catalogue before = sdk::Catalogue::Builtins();
  const absl::StatusOr<sdk::Catalogue> after = sdk::LoadAll({path});
  if (!after.ok()) return Report(after.status());
  std::cout << "plug-in    " << after->plugins()[0] << "\n";
  for (const algorithms::Description* algorithm : after->algorithms().All()) {
    if (before.algorithms().Find(algorithm->name).ok()) continue;
    std::cout << "algorithm  " << algorithm->name << ": " << algorithm->summary << "\n";
  }
  for (const auto& [name, model] : after->models()) {
    std::cout << "model      " << name << ": " << model.summary << "\n";
  }
  for (const auto& [name, source] : after->data_sources()) {
    std::cout << "data       " << name << ": " << source.summary << "\n";
  }
  return kExitOk;
}

}  // namespace macaw::cli
