#include "cli/results/run_paths.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/results/ending.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// One run that a path stands for.
struct Listed {
  std::string folder;
  bool has_begun = true;
  bool may_lack_result = false;  // it is one of a sweep's or a repeat's
};

absl::StatusOr<std::vector<Listed>> OfRepeat(const std::string& file) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("runs") || !json["runs"].is_array()) {
    return absl::DataLossError(absl::StrCat(
        file, " does not hold the runs of a repeat: name folders of runs, or a NAME-repeat.json"));
  }
  std::vector<Listed> listed;
  for (const Json& run : json["runs"]) {
    if (!run.is_object() || !run.contains("folder") || !run["folder"].is_string()) continue;
    const fs::path name = fs::path(run["folder"].get<std::string>()).filename();
    const std::string folder = (fs::path(file).parent_path() / name).string();
    listed.push_back({folder, FileExists(folder), /*may_lack_result=*/true});
  }
  return listed;
}

// Where the runs of a sweep are (cli/sweep/folder.h): each job has a file, and a run once it has
// begun.
absl::StatusOr<std::vector<Listed>> OfSweep(const std::string& folder) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/sweep.json"));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool is_named = json.is_object() && json.contains("runs") && json["runs"].is_string();
  const std::string runs = is_named ? json["runs"].get<std::string>() : "runs/";
  std::vector<Listed> listed;
  std::error_code error;
  for (const fs::directory_entry& job : fs::directory_iterator(folder + "/jobs", error)) {
    if (job.path().extension() != ".toml") continue;
    const std::string run = RunOfJob(folder, runs, job.path().stem().string());
    listed.push_back({run, FileExists(run + "/config.toml"), /*may_lack_result=*/true});
  }
  if (std::ranges::none_of(listed, &Listed::has_begun)) {
    return absl::NotFoundError(
        absl::StrCat(folder, " holds a sweep of which no run has begun: there is none in ",
                     fs::path(RunOfJob(folder, runs, "")).string()));
  }
  std::ranges::sort(listed, {}, &Listed::folder);
  return listed;
}

// The runs that one path stands for.
absl::StatusOr<std::vector<Listed>> ListedAt(const std::string& path) {
  if (absl::EndsWith(path, ".json")) return OfRepeat(path);
  if (FileExists(path + "/sweep.json")) return OfSweep(path);
  return std::vector<Listed>{{.folder = path}};
}

void AddOnce(std::string folder, std::vector<std::string>& all) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (std::ranges::find(all, folder) == all.end()) all.push_back(std::move(folder));
}

// "sweeps/a: 5 of 9 runs failed or are not over, and are left out: 002-seed1, … and 2 more."
std::string WithoutResultText(const std::string& path, const std::vector<std::string>& names,
                              size_t runs) {
  constexpr size_t kMostNamed = 3;
  const size_t named = std::min(names.size(), kMostNamed);
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(named));
  const bool one = names.size() == 1;
  return absl::StrCat(
      path, ": ", names.size(), " of ", runs, " runs failed or ", one ? "is" : "are",
      " not over, and ", one ? "is" : "are", " left out: ", absl::StrJoin(first, ", "),
      named < names.size() ? absl::StrCat(" and ", names.size() - named, " more") : "", ".");
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
    MACAW_ASSIGN_OR_RETURN(const std::vector<Listed> listed, ListedAt(path));
    for (const Listed& run : listed) {
      if (run.has_begun) AddOnce(run.folder, all);
    }
  }
  return all;
}

absl::StatusOr<ResultFolders> FoldersWithResults(const std::vector<std::string>& paths) {
  ResultFolders found;
  for (const std::string& path : paths) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<Listed> listed, ListedAt(path));
    std::vector<std::string> without;
    for (const Listed& run : listed) {
      if (run.may_lack_result && !HasEnded(run.folder)) {
        without.push_back(fs::path(run.folder).filename().string());
      } else {
        AddOnce(run.folder, found.folders);
      }
    }
    if (without.empty()) continue;
    if (without.size() == listed.size()) {
      return absl::NotFoundError(absl::StrCat(
          path, " has no run with a result yet: of its ", listed.size(),
          " runs none is over, or all have failed. The command that began it goes on with it"));
    }
    found.left_out.push_back(WithoutResultText(path, without, listed.size()));
  }
  return found;
}

}  // namespace macaw::cli
