#include "cli/sweep/folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/results/run_paths.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

// "local.lr 0.1 there, 0.05 here; …"; "" where nothing differs.
std::string Difference(const Json& there, const Json& here) {
  std::vector<std::string> parts;
  const auto text = [](const Json& value) {
    return value.is_null() ? std::string("the default") : value.dump();
  };
  const auto compare = [&](const std::string& key, const Json& one, const Json& other) {
    if (one != other)
      parts.push_back(absl::StrCat(key, " ", text(one), " there, ", text(other), " here"));
  };
  for (const auto& [key, value] : there.items()) compare(key, value, here.value(key, Json()));
  for (const auto& [key, value] : here.items()) {
    if (!there.contains(key)) compare(key, Json(), value);
  }
  return absl::StrJoin(parts, "; ");
}

// The keys whose files are known and have changed.
std::vector<std::string> ChangedFiles(const Json& there, const Json& here) {
  std::vector<std::string> keys;
  if (!there.is_object()) return keys;
  for (const auto& [key, digest] : there.items()) {
    if (here.contains(key) && here[key] != digest) keys.push_back(key);
  }
  return keys;
}

// The configuration that the folder has under this name, in the sweep or earlier; null: none.
const Configuration* Known(const SweepPlan& before, const std::string& name) {
  for (const std::vector<Configuration>* const all : {&before.configurations, &before.earlier}) {
    const auto found = std::ranges::find(*all, name, &Configuration::name);
    if (found != all->end()) return &*found;
  }
  return nullptr;
}

// Takes over what the folder knows and the new plan leaves out: digests of files, such as those of
// seeds that it has not, and configurations.
void KeepEarlier(const SweepPlan& before, SweepPlan& plan) {
  for (Configuration& configuration : plan.configurations) {
    const Configuration* const known = Known(before, configuration.name);
    if (known == nullptr) continue;
    for (const auto& [key, digest] : known->inputs.items())
      if (!configuration.inputs.contains(key)) configuration.inputs[key] = digest;
  }
  for (const std::vector<Configuration>* const all : {&before.configurations, &before.earlier}) {
    std::ranges::copy_if(*all, std::back_inserter(plan.earlier), [&](const Configuration& one) {
      return plan.IndexOf(one.name) == plan.configurations.size();
    });
  }
}

// "007" of "007-seed1"
std::string ConfigurationOf(const std::string& job) { return job.substr(0, job.rfind("-seed")); }

// Checks a folder that has no plan. Returns an error if a sweep would write over its files, or hide
// its run.
absl::Status CheckHasNoOther(const std::string& path) {
  for (const char* file : {"table.csv", "best.toml", "report.html", "config.toml"}) {
    if (!FileExists(absl::StrCat(path, "/", file))) continue;
    const bool run = absl::string_view(file) == "config.toml";
    return absl::AlreadyExistsError(
        absl::StrCat(path, run ? " holds a run" : absl::StrCat(" holds no sweep, and has a ", file),
                     ": name another folder by --out", run ? "" : ", or move the file"));
  }
  return absl::OkStatus();
}

}  // namespace

bool SweepFolder::HasPlan() const { return FileExists(path_ + "/sweep.json"); }

absl::StatusOr<SweepPlan> SweepFolder::ReadPlan() const {
  const std::string file = path_ + "/sweep.json";
  if (!FileExists(file)) {
    return absl::NotFoundError(absl::StrCat(path_, " holds no sweep: it has no sweep.json"));
  }
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  return ParsePlan(text, file);
}

bool SweepFolder::Has(const Job& job) const {
  const std::string file = JobFile(job.name);
  if (!FileExists(file)) return false;
  const absl::StatusOr<std::string> text = ReadFile(file);
  return text.ok() && *text == job.config;
}

bool SweepFolder::HasBegun(const std::string& job) const {
  return FileExists(JobFile(job)) || FileExists(ResultFile(job));
}

std::string SweepFolder::RunOf(const SweepPlan& plan, const std::string& job) const {
  return RunOfJob(path_, plan.runs, job);
}

absl::Status SweepFolder::CheckSame(const SweepPlan& plan) const {
  constexpr char kAdvice[] = ": name another --out, or give it what it had";
  if (!HasPlan()) return CheckHasNoOther(path_);
  MACAW_ASSIGN_OR_RETURN(const SweepPlan before, ReadPlan());
  if (before.rungs != plan.rungs || before.factor != plan.factor) {
    return absl::AlreadyExistsError(
        absl::StrCat(path_, " holds a sweep with another [halving]", kAdvice));
  }
  for (const Configuration& here : plan.configurations) {
    const Configuration* const known = Known(before, here.name);
    if (known == nullptr) continue;
    const Configuration& there = *known;
    if (there.settings.is_null()) {
      return absl::AlreadyExistsError(
          absl::StrCat(path_,
                       " holds a sweep that an older version has begun; `macaw sweep show` "
                       "and `macaw report` read it. Name another --out to begin a new one"));
    }
    const std::string difference = Difference(there.settings, here.settings);
    const std::vector<std::string> changed = ChangedFiles(there.inputs, here.inputs);
    if (difference.empty() && !changed.empty()) {
      return absl::AlreadyExistsError(
          absl::StrCat(path_, " holds runs on what ", absl::StrJoin(changed, ", "),
                       " named before; the file has changed since", kAdvice));
    }
    if (difference.empty()) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(path_, " holds another experiment",
                     here.name.empty() ? "" : absl::StrCat(", in its configuration ", here.name),
                     " (", difference, ")", kAdvice));
  }
  return absl::OkStatus();
}

absl::Status SweepFolder::Write(const PreparedSweep& sweep) const {
  MACAW_RETURN_IF_ERROR(CheckSame(sweep.plan));
  for (const char* folder : {"/jobs", "/results"})
    MACAW_RETURN_IF_ERROR(MakeDirectories(path_ + folder));
  for (const Job& job : sweep.jobs) {
    if (!Has(job)) MACAW_RETURN_IF_ERROR(AtomicWriteFile(JobFile(job.name), job.config));
  }
  SweepPlan plan = sweep.plan;
  if (HasPlan()) {
    MACAW_ASSIGN_OR_RETURN(const SweepPlan before, ReadPlan());
    KeepEarlier(before, plan);
  }
  return AtomicWriteFile(path_ + "/sweep.json", JsonOf(plan));
}

absl::StatusOr<size_t> SweepFolder::CountLeftOut() const {
  MACAW_ASSIGN_OR_RETURN(const SweepPlan plan, ReadPlan());
  if (plan.earlier.empty()) return 0;
  std::set<std::string> finished;
  std::error_code error;
  for (std::filesystem::directory_iterator at(path_ + "/results", error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() != ".json") continue;
    const std::string job = at->path().stem().string();
    const absl::StatusOr<JobResult> result = ReadResult(job);
    if (result.ok() && !result->rungs.empty()) finished.insert(ConfigurationOf(job));
  }
  return static_cast<size_t>(std::ranges::count_if(
      plan.earlier, [&](const Configuration& one) { return finished.contains(one.name); }));
}

absl::StatusOr<JobResult> SweepFolder::ReadResult(const std::string& job) const {
  JobResult result;
  const std::string file = ResultFile(job);
  if (!FileExists(file)) return result;
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  try {
    const Json json = Json::parse(text);
    result.failed = json.at("failed").get<bool>();
    result.why = json.at("why").get<std::string>();
    result.accuracy = json.value("accuracy", "");  // older sweeps have none
    for (const Json& rung : json.at("rungs")) {
      result.rungs[rung.at("rounds").get<uint32_t>()] =
          rung.at("values").get<std::map<std::string, double>>();
    }
    return result;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat(file, " is not the result of a job: ", error.what(),
                                            "; remove it, and the job goes on"));
  }
}

absl::Status SweepFolder::WriteResult(const std::string& job, const JobResult& result) const {
  Json json = {{"failed", result.failed}, {"why", result.why}, {"rungs", Json::array()}};
  if (!result.accuracy.empty()) json["accuracy"] = result.accuracy;
  for (const auto& [rounds, values] : result.rungs)
    json["rungs"].push_back({{"rounds", rounds}, {"values", values}});
  return AtomicWriteFile(ResultFile(job),
                         json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

absl::Status SweepFolder::ForgetFailed(const SweepPlan& plan) const {
  MACAW_ASSIGN_OR_RETURN(auto results, ReadResults(*this, plan));
  for (auto& [name, result] : results) {
    if (!result.failed) continue;
    result.failed = false;
    result.why = "";
    MACAW_RETURN_IF_ERROR(WriteResult(name, result));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, JobResult>> ReadResults(const SweepFolder& folder,
                                                             const SweepPlan& plan) {
  std::map<std::string, JobResult> results;
  for (const Configuration& configuration : plan.configurations) {
    for (const uint64_t seed : plan.seeds) {
      const std::string name = JobName(configuration, seed);
      MACAW_ASSIGN_OR_RETURN(results[name], folder.ReadResult(name));
      const bool is_repeat = configuration.name.empty();
      if (is_repeat && !FileExists(folder.RunOf(plan, name) + "/summary.json"))
        results[name].rungs.clear();
    }
  }
  return results;
}

}  // namespace macaw::cli
