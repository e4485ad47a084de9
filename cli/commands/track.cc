#include "cli/config/track.h"

#include <poll.h>

#include <iostream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/lock.h"
#include "cli/process/signals.h"
#include "cli/track/tracking.h"
#include "core/files.h"
#include "core/settings/section.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// Hands a run's rows on to trackers (cli/track/).
struct TrackCommand {
  std::string run;
  std::vector<std::string> to;  // empty: what the run's configuration says
  std::string mlflow_uri;       // likewise
  bool follow = false;          // until the run's process ends, or Ctrl-C
};

constexpr int kLookEveryMs = 500;
constexpr Duration kAtMost =
    std::chrono::seconds(30);  // to wait for trackers once all rows are read

absl::Status Track(const TrackCommand& command) {
  if (!FileExists(command.run + "/config.toml"))
    return MissingFile(command.run + "/config.toml",
                       absl::StrCat(command.run, " is not the folder of a run"));
  MACAW_ASSIGN_OR_RETURN(TrackConfig config, ReadTrackConfig(command.run));
  if (!command.to.empty()) config.to = command.to;
  if (!command.mlflow_uri.empty()) config.mlflow_uri = command.mlflow_uri;
  if (config.to.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("name a tracker with --to: the run's configuration has no run.track"));
  }
  if (!command.mlflow_uri.empty() && !settings::Contains(config.to, "mlflow")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mlflow-uri has no effect without the tracker mlflow; the rows go to ",
                     absl::StrJoin(config.to, ", ")));
  }
  MACAW_ASSIGN_OR_RETURN(SignalFd signals, SignalFd::Open());
  MACAW_ASSIGN_OR_RETURN(Tracking tracking, Tracking::Start(command.run, config, kAtMost));
  const auto tell = [&] {
    for (const std::string& line : tracking.TakeLines()) std::cerr << line << "\n" << std::flush;
  };
  // A folder whose lock is free has no process that writes rows.
  FolderLock lock = FolderLock::kFree;
  while (command.follow && (lock = LookAtLock(command.run)) == FolderLock::kHeld) {
    pollfd ends{.fd = signals.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ends, 1, kLookEveryMs) > 0) {
      signals.Take();  // the first one ends the following, and another one the delivery
      break;
    }
    tell();
  }
  const bool all = tracking.Finish(signals.fd());
  tell();
  if (lock == FolderLock::kUnknown) return UnknownLock(command.run);
  return all ? absl::OkStatus() : absl::UnavailableError("not everything was delivered");
}

int TrackRun(const TrackCommand& command) { return Report(Track(command)); }

}  // namespace

void AddTrack(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "track", "Hand a run's rows on: to TensorBoard, MLflow, Weights & Biases, a table");
  auto options = std::make_shared<TrackCommand>();
  command->add_option("RUN", options->run, "The run's folder")->required();
  command->add_option("--to", options->to, "Which trackers (default: the run's run.track)")
      ->check(CLI::IsMember(Trackers()))
      ->delimiter(',');
  command->add_option("--mlflow-uri", options->mlflow_uri,
                      "The MLflow server, http://host:port (default: the run's run.mlflow.uri, or "
                      "MLFLOW_TRACKING_URI)");
  command->add_flag("-f,--follow", options->follow, "Go on until the run's process ends");
  command->footer(
      "What a tracker has is not delivered again, so the command can be repeated. The packages are "
      "those of MACAW_PYTHON, or python3. Exit code 1: something could not be delivered.");
  command->final_callback([=, &run] { run = [options] { return TrackRun(*options); }; });
}

}  // namespace macaw::cli
