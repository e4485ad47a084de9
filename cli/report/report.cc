#include "cli/report/report.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/report/page_html.h"
#include "cli/report/page_script.h"
#include "cli/report/page_style.h"
#include "cli/results/alike.h"
#include "cli/results/ending.h"
#include "cli/results/result.h"
#include "cli/results/run_paths.h"
#include "cli/timeline/timeline.h"
#include "core/files.h"
#include "core/status.h"
#include "sdk/catalogue.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 2000;  // of a curve
constexpr size_t kBins = 20;          // of the histogram
constexpr size_t kPhasesDrawn = 3;

// Six digits are more than a curve shows, and make the page a third as large.
Json Short(double value) {
  if (!std::isfinite(value)) return nullptr;
  return Json::parse(absl::StrFormat("%.6g", value));
}

// Gives each row of a file of JSON lines to `use`, one after another: the file may be large. A last
// line without its end, which a crash has cut off or a run is just writing, is skipped.
absl::Status ReadRows(const std::string& path, const std::function<void(Json)>& use) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return FileError("cannot open", path);
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object()) {
      use(std::move(row));
    } else if (!file.eof()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, " is not a JSON object"));
    }
  }
  if (file.bad()) return FileError("cannot read", path);
  return absl::OkStatus();
}

// NaN: the row does not have it.
double Number(const Json& row, const char* column) {
  const auto found = row.find(column);
  return found != row.end() && found->is_number() ? found->get<double>() : std::nan("");
}

// 0: the row has no such number.
uint64_t RoundInRow(const Json& row) {
  const double round = Number(row, "round");
  return round >= 0 && round <= UINT32_MAX ? static_cast<uint64_t>(round) : 0;
}

// Which rows are shown: every n-th, and the last.
std::vector<size_t> Shown(size_t rows) {
  const size_t every = std::max<size_t>(1, (rows + kMostPoints - 1) / kMostPoints);
  std::vector<size_t> shown;
  for (size_t i = every - 1; i < rows; i += every) shown.push_back(i);
  if (rows > 0 && (shown.empty() || shown.back() != rows - 1)) shown.push_back(rows - 1);
  return shown;
}

// JavaScript has doubles: a whole number that is larger than they have exactly is given as text.
Json ForScript(Json value) {
  constexpr uint64_t kMost = uint64_t{1} << 53;
  const bool large = value.is_number_unsigned() ? value.get<uint64_t>() > kMost
                     : value.is_number_integer()
                         ? value.get<int64_t>() < -static_cast<int64_t>(kMost)
                         : false;
  return large ? Json(value.dump()) : value;
}

// Metrics that are there in some rows only (those of evaluations) have curves of those rows. A
// number that is not defined (the run has diverged) is a place without a value.
Json CurvesOf(const std::vector<Json>& rows) {
  std::map<std::string, std::vector<std::pair<double, double>>> points;
  for (const Json& row : rows) {
    const auto round = static_cast<double>(RoundInRow(row));
    for (const auto& [metric, value] : row.items()) {
      if (metric != "round" && (value.is_number() || value.is_null()))
        points[metric].emplace_back(round, value.is_null() ? std::nan("") : value.get<double>());
    }
  }
  Json curves = Json::object();
  for (const auto& [metric, all] : points) {
    Json x = Json::array(), y = Json::array();
    for (const size_t i : Shown(all.size())) {
      x.push_back(static_cast<uint64_t>(all[i].first));
      y.push_back(Short(all[i].second));
    }
    curves[metric] = {{"x", std::move(x)}, {"y", std::move(y)}};
  }
  return curves;
}

// Where the run was when it had closed a round: {"rounds": […], "seconds": […], "bytes": […]}, sums
// of virtual seconds and of bytes up and down. What some row does not have is left out.
Json AcrossOf(const std::vector<Json>& rows) {
  const std::vector<size_t> shown = Shown(rows.size());
  Json across = Json::object(), rounds = Json::array();
  for (const size_t i : shown) rounds.push_back(RoundInRow(rows[i]));
  across["rounds"] = std::move(rounds);
  const std::map<std::string, std::vector<const char*>> axes = {
      {"seconds", {"virtual_seconds"}}, {"bytes", {"bytes_up", "bytes_down"}}};
  for (const auto& [axis, columns] : axes) {
    double sum = 0;
    std::vector<double> sums;
    for (const Json& row : rows) {
      for (const char* column : columns) sum += Number(row, column);
      sums.push_back(sum);
    }
    if (!std::isfinite(sum)) continue;
    Json places = Json::array();
    for (const size_t i : shown) places.push_back(Short(sums[i]));
    across[axis] = std::move(places);
  }
  return across;
}

// How many clients have which accuracy: {"clients": 3, "counts": [0, 0, 2, …]}; null: none has one.
Json Histogram(const std::vector<double>& accuracies) {
  if (accuracies.empty()) return nullptr;
  std::array<uint64_t, kBins> counts{};
  for (const double accuracy : accuracies) {
    const double place = std::clamp(accuracy, 0.0, 1.0) * kBins;
    ++counts[std::min(static_cast<size_t>(place), kBins - 1)];
  }
  return {{"clients", accuracies.size()}, {"counts", counts}};
}

// The training accuracy of each client, from its last turn.
absl::StatusOr<Json> TrainingAccuracies(const std::string& folder) {
  if (!FileExists(folder + "/clients.jsonl")) return Json();
  std::map<uint64_t, double> last;
  MACAW_RETURN_IF_ERROR(ReadRows(folder + "/clients.jsonl", [&](const Json& row) {
    const auto client = row.find("client"), accuracy = row.find("accuracy");
    if (client == row.end() || accuracy == row.end()) return;
    if (client->is_number_unsigned() && accuracy->is_number())
      last[client->get<uint64_t>()] = accuracy->get<double>();
  }));
  std::vector<double> accuracies;
  for (const auto& [client, accuracy] : last) accuracies.push_back(accuracy);
  return Histogram(accuracies);
}

// Histograms by what the accuracies are of: "clients_test" and other rows of the newest evaluation
// (server/client_evaluation.h), and "training".
absl::StatusOr<Json> AccuracyByClient(const std::string& folder) {
  Json histograms = Json::object();
  MACAW_ASSIGN_OR_RETURN(Json training, TrainingAccuracies(folder));
  if (!training.is_null()) histograms["training"] = std::move(training);
  const absl::StatusOr<std::string> text = ReadFile(folder + "/clients_evaluated.json");
  const Json evaluated =
      text.ok() ? Json::parse(*text, nullptr, /*allow_exceptions=*/false) : Json::object();
  if (!evaluated.is_object()) return histograms;
  for (const auto& [rows, lists] : evaluated.items()) {
    if (!lists.is_object() || !lists.contains("accuracy")) continue;
    std::vector<double> accuracies;
    for (const Json& accuracy : lists["accuracy"]) {
      if (accuracy.is_number()) accuracies.push_back(accuracy.get<double>());
    }
    if (Json histogram = Histogram(accuracies); !histogram.is_null())
      histograms[rows] = std::move(histogram);
  }
  return histograms;
}

Json TimeOf(const std::string& folder) {
  if (!FileExists(folder + "/timeline.json")) return nullptr;
  const absl::StatusOr<Timeline> timeline = ReadTimeline(folder + "/timeline.json");
  if (!timeline.ok() || timeline->phases.empty()) return nullptr;
  const TimeSpent spent = Spent(*timeline);
  if (spent.phases == 0) return nullptr;
  const size_t count = timeline->phases.size();
  return {{"phases", spent.phases},
          {"parts",
           {{"prepare", spent.prepare},
            {"hand out", spent.hand_out},
            {"train", spent.train},
            {"commit", spent.commit},
            {"apply", spent.apply}}},
          {"whole", spent.whole},
          {"busy", spent.busy},
          {"busy_training", spent.busy_training},
          {"picture", Picture(*timeline, count - std::min(count, kPhasesDrawn), count - 1)}};
}

// What a sweep says of a run in its folder (cli/sweep/folder.h).
struct InSweep {
  std::string configuration;       // its number, "003"
  std::optional<std::string> why;  // the run has failed
};

// Nothing for runs that are not SWEEP/runs/003-seed1.
std::optional<InSweep> FindInSweep(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  const std::string name = path.filename().string();
  const std::filesystem::path sweep = path.parent_path().parent_path();
  const size_t end = name.rfind("-seed");
  if (end == std::string::npos || path.parent_path().filename() != "runs" ||
      !FileExists(sweep / "sweep.json"))
    return std::nullopt;
  InSweep found{.configuration = name.substr(0, end), .why = std::nullopt};
  const absl::StatusOr<std::string> text = ReadFile(sweep / "results" / (name + ".json"));
  const Json result =
      text.ok() ? Json::parse(*text, nullptr, /*allow_exceptions=*/false) : Json::object();
  if (result.is_object() && result.contains("failed") && result["failed"] == true) {
    const bool said = result.contains("why") && result["why"].is_string();
    found.why = said ? result["why"].get<std::string>() : "";
  }
  return found;
}

absl::StatusOr<Json> RunOf(const std::string& folder) {
  std::vector<Json> rows;
  if (FileExists(folder + "/metrics.jsonl")) {
    MACAW_RETURN_IF_ERROR(
        ReadRows(folder + "/metrics.jsonl", [&](Json row) { rows.push_back(std::move(row)); }));
  } else if (!FileExists(folder + "/config.toml")) {
    return MissingFile(
        folder + "/config.toml",
        absl::StrCat(folder, " holds no run: it has no metrics.jsonl and no config.toml"));
  }
  Json run = {{"folder", folder}, {"rounds", rows.size()}, {"end", "not over"}};
  if (HasEnded(folder)) {
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder + "/summary.json"));
    Json summary = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!summary.is_object())
      return absl::InvalidArgumentError(absl::StrCat(folder, "/summary.json is not JSON"));
    for (const char* shown :
         {"name", "algorithm", "settings", "seed", "end", "reason", "rounds", "seconds",
          "rounds_per_second", "model_digest", "data_digest", "parameters", "best", "best_model",
          "privacy", "peak_memory_bytes", "reproducible", "profile"}) {
      if (summary.contains(shown)) run[shown] = std::move(summary[shown]);
    }
    if (!run.contains("seed") || !run["seed"].is_number_unsigned()) {
      run.erase("seed");
    } else {
      run["seed"] = ForScript(run["seed"]);
    }
  }
  if (FileExists(folder + "/config.toml")) {
    MACAW_ASSIGN_OR_RETURN(run["config"], ReadFile(folder + "/config.toml"));
  }
  if (const std::optional<InSweep> sweep = FindInSweep(folder)) {
    run["sweep"] = sweep->configuration;
    if (sweep->why.has_value() && !HasEnded(folder)) {
      run["end"] = "failed";
      run["reason"] = *sweep->why;
    }
  }
  run["curves"] = CurvesOf(rows);
  run["across"] = AcrossOf(rows);
  MACAW_ASSIGN_OR_RETURN(run["accuracy"], AccuracyByClient(folder));
  run["time"] = TimeOf(folder);
  return run;
}

// What each run is called on the page: its name; where several have it, or a sweep has named it,
// its folder's.
void NameRuns(Json& runs) {
  namespace fs = std::filesystem;
  const auto folder_of = [](const Json& run) {
    return fs::path(run["folder"].get<std::string>()).filename().string();
  };
  const auto name_of = [&](const Json& run) {
    const auto name = run.find("name");
    return name != run.end() && name->is_string() ? name->get<std::string>() : folder_of(run);
  };
  std::map<std::string, int> names, folders;
  for (const Json& run : runs) {
    ++names[name_of(run)];
    ++folders[folder_of(run)];
  }
  for (Json& run : runs) {
    const std::string name = name_of(run);
    run["label"] = names[name] == 1 && !run.contains("sweep") ? name
                   : folders[folder_of(run)] == 1             ? folder_of(run)
                                                              : run["folder"].get<std::string>();
  }
}

// What differs between the runs that say what they are: {"runs": [place among the runs, …], "rows":
// [{"key", "values"}]}. A value is what the run has, a default included; "": its rule has no such
// key.
// Their settings are completed, so that the page can group by them.
Json Differences(Json& runs) {
  const sdk::Catalogue builtins = sdk::Catalogue::Builtins();
  std::vector<RunResult> known;
  Json places = Json::array(), rows = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].contains("settings")) continue;
    absl::StatusOr<RunResult> result = ReadResult(runs[i]["folder"].get<std::string>());
    if (!result.ok()) continue;
    known.push_back(*std::move(result));
    places.push_back(i);
  }
  TellApart(known);
  for (size_t i = 0; i < known.size(); ++i) {
    Json& settings = runs[places[i].get<size_t>()]["settings"] = Json::object();
    for (const auto& [key, value] : known[i].settings)
      settings[key] = ForScript(Json::parse(value));
  }
  for (const std::string& key : known.empty() ? std::vector<std::string>() : DifferingKeys(known)) {
    Json values = Json::array();
    for (const RunResult& run : known) values.push_back(SettingOf(run, key, builtins.algorithms()));
    rows.push_back({{"key", key}, {"values", std::move(values)}});
  }
  return {{"runs", std::move(places)}, {"rows", std::move(rows)}};
}

}  // namespace

absl::StatusOr<std::string> ReportData(const std::vector<std::string>& paths) {
  Json runs = Json::array();
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> folders, RunFolders(paths));
  for (const std::string& folder : folders) {
    MACAW_ASSIGN_OR_RETURN(Json run, RunOf(folder));
    runs.push_back(std::move(run));
  }
  NameRuns(runs);
  Json differs = Differences(runs);
  const Json data = {
      {"version", MACAW_VERSION}, {"runs", std::move(runs)}, {"differs", std::move(differs)}};
  // Names and configurations are anybody's words: as JSON with this one replacement they cannot end
  // the element that they stand in. Bytes that are not UTF-8 become marks.
  return absl::StrReplaceAll(
      data.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace),
      {{"<", "\\u003c"}});
}

std::string ReportPage(const std::string& data) {
  return absl::StrReplaceAll(
      kReportHtml, {{"@STYLE@", kReportStyle}, {"@SCRIPT@", kReportScript}, {"@DATA@", data}});
}

}  // namespace macaw::cli
