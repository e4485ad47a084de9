#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/sweep/prepare.h"

namespace macaw::cli {

// What became of a job, rung by rung (one rung without halving).
struct JobResult {
  std::map<uint32_t, std::map<std::string, double>> rungs;  // by rounds: every value (ValuesOf)
  std::string accuracy;                                     // TableRun has it
  bool failed = false;
  std::string why;  // it failed
};

// The folder of a sweep: what it has in it decides what is left to do.
//   sweep.json          the plan
//   jobs/NAME.toml      the configuration of each job, written before any job begins
//   runs/NAME/          its run, or where else the plan says
//   results/NAME.json   what became of it; written when a rung of it is over, or when it failed
//   table.csv, best.toml, report.html    at the end
// Every file is replaced atomically. One thread; the sweep holds the folder's lock.
class SweepFolder {
 public:
  explicit SweepFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string JobFile(const std::string& job) const { return path_ + "/jobs/" + job + ".toml"; }
  std::string RunOf(const SweepPlan& plan, const std::string& job) const;
  bool HasPlan() const;
  absl::StatusOr<SweepPlan> ReadPlan() const;  // an error if there is none

  // Whether the folder has this job, with the same configuration.
  bool Has(const Job& job) const;
  // Whether an earlier command has made a job of this name.
  bool HasBegun(const std::string& job) const;
  // Returns an error if the folder is of a sweep whose configurations have other settings, or whose
  // rungs are others; or if it holds no sweep, but a run or files that a sweep writes. Further
  // seeds and configurations may be added, some may be left out, another metric may be chosen, and
  // it may be computed elsewhere or otherwise.
  absl::Status CheckSame(const SweepPlan& plan) const;
  // Checks that, and writes plan and jobs. Configurations that the folder had and the sweep has not
  // stay in the plan that is written, as `earlier`: no run of theirs is taken for another's.
  absl::Status Write(const PreparedSweep& sweep) const;
  // How many of the plan's `earlier` configurations have a finished run.
  absl::StatusOr<size_t> CountLeftOut() const;

  absl::StatusOr<JobResult> ReadResult(const std::string& job) const;  // empty: nothing is over
  absl::Status WriteResult(const std::string& job, const JobResult& result) const;
  // Forgets what failed, so that it is tried again.
  absl::Status ForgetFailed(const SweepPlan& plan) const;

 private:
  std::string ResultFile(const std::string& job) const {
    return path_ + "/results/" + job + ".json";
  }

  std::string path_;
};

// The results of all jobs of a plan, by name. A repeat's runs are beside its folder, where one can
// be removed alone: then nothing of it is over.
absl::StatusOr<std::map<std::string, JobResult>> ReadResults(const SweepFolder& folder,
                                                             const SweepPlan& plan);

}  // namespace macaw::cli
