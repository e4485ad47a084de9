#include "cli/simulate/going_on.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "training/api/schedule.h"

namespace macaw::cli {
namespace {

// A run that goes on keeps its schedule: over more rounds the rounds that are done would have had
// other rates. A cosine that has ended would train all further rounds at its floor.
absl::StatusOr<std::string> CheckScheduleGoesOn(const RunPlan& run, const RunPlan& before,
                                                const std::string& folder) {
  const Schedule& schedule = run.local.lr_schedule;
  if (schedule.kind != "cosine" || run.rounds <= before.rounds) return std::string();
  if (training::LocalSchedule(before).rounds != before.rounds) return std::string();
  if (schedule.floor > 0) {
    return absl::StrCat("local.lr_schedule is a cosine over the ", before.rounds,
                        " rounds that the run had, and a run that goes on keeps it: rounds ",
                        before.rounds + 1, " to ", run.rounds, " train at its floor, ",
                        schedule.floor, " of local.lr");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "run.rounds: local.lr_schedule is a cosine over the ", before.rounds,
      " rounds that the run had, and a run that goes on keeps it, so rounds ", before.rounds + 1,
      " to ", run.rounds, " would train at a rate of 0 (a longer cosine would have given the ",
      "rounds that are done other rates). Begin a run of ", run.rounds,
      " rounds again, or one that starts from this model: --set model.init=", folder,
      "/model.safetensors"));
}

}  // namespace

absl::StatusOr<std::string> CheckGoesOn(const Config& config, const Config& before,
                                        const std::string& folder) {
  if (config.run.rounds < before.run.rounds) {
    return absl::InvalidArgumentError(absl::StrCat("run.rounds was ", before.run.rounds,
                                                   "; a run that goes on may have more, not ",
                                                   config.run.rounds));
  }
  if (config.node.workers.owners != before.node.workers.owners) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers.owners was ", before.node.workers.owners,
                     "; a run that goes on keeps it: the owners have rows and states"));
  }
  return CheckScheduleGoesOn(config.run, before.run, folder);
}

}  // namespace macaw::cli
