#include "cli/sweep/folder.h"

#include <nlohmann/json.hpp>
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

// Takes over the digests of files that the earlier plan knows and this one does not ask for, such as
// those of seeds that it leaves out.
void KeepInputs(const SweepPlan& before, SweepPlan& plan) {
  for (Configuration& configuration : plan.configurations) {
    const size_t at = before.IndexOf(configuration.name);
    if (at == before.configurations.size()) continue;
    for (const auto& [key, digest] : before.configurations[at].inputs.items())
      if (!configuration.inputs.contains(key)) configuration.inputs[key] = digest;
  }
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
  if (!HasPlan()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const SweepPlan before, ReadPlan());
  if (before.rungs != plan.rungs || before.factor != plan.factor) {
    return absl::AlreadyExistsError(
        absl::StrCat(path_, " holds a sweep with another [halving]", kAdvice));
  }
  for (const Configuration& here : plan.configurations) {
    const size_t at = before.IndexOf(here.name);
    if (at == before.configurations.size()) continue;
    const Configuration& there = before.configurations[at];
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
    KeepInputs(before, plan);
  }
  return AtomicWriteFile(path_ + "/sweep.json", JsonOf(plan));
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
