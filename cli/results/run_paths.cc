#include "cli/results/run_paths.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
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
  bool had_result = false;       // says the sweep or the repeat
};

int ReadErrorOf(const std::string& folder) {
  return ::access((folder + "/.").c_str(), R_OK | X_OK) == 0 ? 0 : errno;
}

constexpr char kGone[] = "gone";

// What is wrong with the folder of a run that is left out; "": nothing. A run without a result may
// not have begun, and has no folder then.
std::string WhyNotThere(const Listed& run) {
  const int error = ReadErrorOf(run.folder);
  if (error == 0 || (error == ENOENT && !run.had_result)) return "";
  if (error == ENOENT) return kGone;
  return absl::StrCat("cannot be read (", std::generic_category().message(error), ")");
}

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
    listed.push_back({.folder = folder,
                      .has_begun = ReadErrorOf(folder) == 0,
                      .may_lack_result = true,
                      .had_result = run.contains("end") && run["end"].is_string()});
  }
  return listed;
}

// Whether the result of a sweep's job (cli/sweep/folder.h) says that its run is done.
bool IsDone(const std::string& result) {
  const Json json = Json::parse(ReadFile(result).value_or(""), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("failed") && json["failed"] == false;
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
    const std::string name = job.path().stem().string(), run = RunOfJob(folder, runs, name);
    listed.push_back({.folder = run,
                      .has_begun = FileExists(run + "/config.toml"),
                      .may_lack_result = true,
                      .had_result = IsDone(absl::StrCat(folder, "/results/", name, ".json"))});
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
  std::error_code ignored;
  if (absl::EndsWith(path, ".json") && !fs::is_directory(path, ignored)) return OfRepeat(path);
  if (FileExists(path + "/sweep.json")) return OfSweep(path);
  return std::vector<Listed>{{.folder = path}};
}

void AddOnce(std::string folder, std::vector<std::string>& all) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (std::ranges::find(all, folder) == all.end()) all.push_back(std::move(folder));
}

// The runs of one path that are left out, by why. "": they failed or are not over.
using LeftOut = std::map<std::string, std::vector<std::string>>;

std::string FolderNameOf(const Listed& run) { return fs::path(run.folder).filename().string(); }

// "002-seed1, 002-seed2, 003-seed1 and 2 more."
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kMostNamed = 3;
  const size_t named = std::min(names.size(), kMostNamed);
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(named));
  const size_t more = names.size() - named;
  return absl::StrCat(absl::StrJoin(first, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "", ".");
}

// "sweeps/a: 5 of 9 runs failed or are not over, and are left out: 002-seed1, … and 2 more.", or
// "sweeps/a: 1 of 9 runs is left out, because its folder is gone: 002-seed1."
std::vector<std::string> LeftOutTexts(const std::string& path, const LeftOut& left_out,
                                      size_t runs) {
  std::vector<std::string> texts;
  for (const auto& [why, names] : left_out) {
    const bool one = names.size() == 1;
    const char* const be = one ? "is" : "are";
    const std::string what =
        why.empty()
            ? absl::StrCat("failed or ", be, " not over, and ", be, " left out")
            : absl::StrCat(be, " left out, because ", one ? "its folder " : "their folders ",
                           why == kGone ? absl::StrCat(be, " ") : "", why);
    texts.push_back(
        absl::StrCat(path, ": ", names.size(), " of ", runs, " runs ", what, ": ", FirstOf(names)));
  }
  return texts;
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

std::vector<std::string> UnreadableRuns(const std::vector<std::string>& paths) {
  std::vector<std::string> texts;
  for (const std::string& path : paths) {
    const std::vector<Listed> listed = ListedAt(path).value_or(std::vector<Listed>());
    LeftOut left_out;
    for (const Listed& run : listed) {
      if (!run.may_lack_result || run.has_begun) continue;
      if (const std::string why = WhyNotThere(run); !why.empty())
        left_out[why].push_back(FolderNameOf(run));
    }
    for (std::string& text : LeftOutTexts(path, left_out, listed.size()))
      texts.push_back(std::move(text));
  }
  return texts;
}

std::string WhyUnreadable(const std::string& folder) {
  const int error = ReadErrorOf(folder);
  return error == 0 ? "" : std::generic_category().message(error);
}

absl::StatusOr<ResultFolders> FoldersWithResults(const std::vector<std::string>& paths) {
  ResultFolders found;
  for (const std::string& path : paths) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<Listed> listed, ListedAt(path));
    LeftOut without;
    size_t there = 0;
    for (const Listed& run : listed) {
      if (run.may_lack_result && !HasEnded(run.folder)) {
        without[WhyNotThere(run)].push_back(FolderNameOf(run));
      } else {
        ++there;
        AddOnce(run.folder, found.folders);
      }
    }
    std::vector<std::string> texts = LeftOutTexts(path, without, listed.size());
    if (there == 0 && without.size() == 1 && without.contains("")) {
      return absl::NotFoundError(absl::StrCat(
          path, " has no run with a result yet: of its ", listed.size(),
          " runs none is over, or all have failed. The command that began it goes on with it"));
    }
    if (there == 0 && !without.empty()) return absl::NotFoundError(absl::StrJoin(texts, " "));
    std::ranges::move(texts, std::back_inserter(found.left_out));
  }
  return found;
}

}  // namespace macaw::cli
