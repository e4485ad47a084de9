#include "cli/sweep/folder.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

// The lines of a configuration, each with its table: "local.lr = 0.1".
std::vector<std::string> LinesOf(const std::string& toml) {
  std::vector<std::string> lines;
  std::string table;
  for (const absl::string_view line : absl::StrSplit(toml, '\n', absl::SkipEmpty())) {
    if (line.front() == '[') {
      table = absl::StrCat(line.substr(1, line.size() - 2), ".");
    } else if (line.front() != '#') {
      lines.push_back(absl::StrCat(table, line));
    }
  }
  return lines;
}

// What one configuration has and the other does not.
std::string OnlyIn(const std::string& one, const std::string& other) {
  const std::vector<std::string> others = LinesOf(other);
  const std::set<std::string> there(others.begin(), others.end());
  for (const std::string& line : LinesOf(one)) {
    if (!there.contains(line)) return line;
  }
  return "nothing more";
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

absl::Status SweepFolder::CheckSame(const PreparedSweep& sweep) const {
  constexpr char kAdvice[] = ": name another --out, or bring the sweep file back to what it was";
  if (HasPlan()) {
    MACAW_ASSIGN_OR_RETURN(const SweepPlan before, ReadPlan());
    if (before.rungs != sweep.plan.rungs || before.factor != sweep.plan.factor) {
      return absl::AlreadyExistsError(
          absl::StrCat(path_, " holds a sweep with another [halving]", kAdvice));
    }
  }
  for (const Job& job : sweep.jobs) {
    if (!FileExists(JobFile(job.name)) || Has(job)) continue;
    MACAW_ASSIGN_OR_RETURN(const std::string there, ReadFile(JobFile(job.name)));
    return absl::AlreadyExistsError(absl::StrCat(
        path_, " holds another sweep: its job ", job.name, " has ", OnlyIn(there, job.config),
        ", and would have ", OnlyIn(job.config, there), " now", kAdvice));
  }
  return absl::OkStatus();
}

absl::Status SweepFolder::Write(const PreparedSweep& sweep) const {
  MACAW_RETURN_IF_ERROR(CheckSame(sweep));
  for (const char* folder : {"/jobs", "/runs", "/results"})
    MACAW_RETURN_IF_ERROR(MakeDirectories(path_ + folder));
  for (const Job& job : sweep.jobs) {
    if (!Has(job)) MACAW_RETURN_IF_ERROR(AtomicWriteFile(JobFile(job.name), job.config));
  }
  return AtomicWriteFile(path_ + "/sweep.json", JsonOf(sweep.plan));
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
    }
  }
  return results;
}

}  // namespace macaw::cli
