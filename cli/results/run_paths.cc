#include "cli/results/run_paths.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

absl::StatusOr<std::vector<std::string>> OfRepeat(const std::string& file) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("runs") || !json["runs"].is_array()) {
    return absl::DataLossError(absl::StrCat(
        file, " does not hold the runs of a repeat: name folders of runs, or a NAME-repeat.json"));
  }
  std::vector<std::string> folders;
  for (const Json& run : json["runs"]) {
    if (!run.is_object() || !run.contains("folder") || !run["folder"].is_string()) continue;
    const fs::path name = fs::path(run["folder"].get<std::string>()).filename();
    const std::string folder = (fs::path(file).parent_path() / name).string();
    if (run.contains("end") || FileExists(folder)) folders.push_back(folder);  // else not begun
  }
  return folders;
}

// Where the runs of a sweep are (cli/sweep/folder.h): each job has a file, and a run once it has
// begun.
absl::StatusOr<std::vector<std::string>> OfSweep(const std::string& folder) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/sweep.json"));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_named = json.is_object() && json.contains("runs") && json["runs"].is_string();
  const std::string runs = is_named ? json["runs"].get<std::string>() : "runs/";
  std::vector<std::string> folders;
  std::error_code error;
  for (const fs::directory_entry& job : fs::directory_iterator(folder + "/jobs", error)) {
    if (job.path().extension() != ".toml") continue;
    const std::string run = RunOfJob(folder, runs, job.path().stem().string());
    if (FileExists(run + "/config.toml")) folders.push_back(run);
  }
  if (folders.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, " holds a sweep of which no run has begun: there is none in ",
                     fs::path(RunOfJob(folder, runs, "")).string()));
  }
  std::ranges::sort(folders);
  return folders;
}

}  // namespace

std::string RunOfJob(const std::string& sweep, const std::string& runs, const std::string& job) {
  std::string name = absl::StrCat(runs, job);
  fs::path folder(sweep);
  if (absl::StartsWith(name, "../")) {
    name = name.substr(3);
    if (!folder.has_filename()) folder = folder.parent_path();  // "DIR/"
    folder = folder.parent_path();
  }
  return (folder / name).string();
}

absl::StatusOr<std::vector<std::string>> RunFolders(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    std::vector<std::string> folders = {path};
    if (absl::EndsWith(path, ".json")) {
      MACAW_ASSIGN_OR_RETURN(folders, OfRepeat(path));
    } else if (FileExists(path + "/sweep.json")) {
      MACAW_ASSIGN_OR_RETURN(folders, OfSweep(path));
    }
    for (std::string& folder : folders) {
      while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
      if (std::ranges::find(all, folder) == all.end()) all.push_back(std::move(folder));
    }
  }
  return all;
}

}  // namespace macaw::cli
