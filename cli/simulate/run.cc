#include "cli/simulate/run.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/config/client_state.h"
#include "cli/config/resolve.h"
#include "cli/simulate/private_redis.h"
#include "cli/simulate/progress.h"
#include "cli/simulate/run_folder.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

size_t TerminalWidth() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

absl::StatusOr<std::string> ProgramBeside(const std::string& folder, const std::string& name) {
  std::string path = absl::StrCat(folder, "/", name);
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(path, " is not there; it belongs beside macaw"));
  }
  return path;
}

}  // namespace

absl::StatusOr<std::string> ProgramFolder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::ErrnoToStatus(error.value(), "cannot read /proc/self/exe");
  return program.parent_path().string();
}

absl::StatusOr<RunEnd> RunInChildren(const Config& config, const RunOptions& options) {
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  MACAW_ASSIGN_OR_RETURN(const std::string server, ProgramBeside(programs, "macaw-server"));
  MACAW_ASSIGN_OR_RETURN(const std::string worker, ProgramBeside(programs, "macaw-worker"));

  std::optional<SocketFolder> private_folder;
  std::string listen = config.server.listen;
  if (listen.empty()) {
    MACAW_ASSIGN_OR_RETURN(private_folder, SocketFolder::Make());
    listen = absl::StrCat("unix:", private_folder->socket());
  }

  if (options.stateful) HandRedisPasswordOn(config);
  std::optional<PrivateRedis> redis;  // outlives the workers
  if (options.stateful && config.state.store == "redis" && config.state.url == "spawn") {
    MACAW_ASSIGN_OR_RETURN(redis, PrivateRedis::Start(options.folder));
  }

  Progress progress({.terminal = ::isatty(STDERR_FILENO) != 0,
                     .quiet = options.quiet,
                     .width = TerminalWidth,
                     .rounds = config.run.rounds,
                     .cohort = config.run.cohort.size},
                    SteadyClock(), [](absl::string_view text) {
                      std::fwrite(text.data(), 1, text.size(), stderr);
                      std::fflush(stderr);
                    });

  if (options.trace) MACAW_RETURN_IF_ERROR(MakeDirectories(options.folder + "/trace"));
  const auto log = [&](const std::string& name) {
    return absl::StrCat(options.folder, "/logs/", name, ".log");
  };
  const uint32_t slots = SlotsPerProcess(config.workers);

  // States on this host are made durable beside the rounds, once a checkpoint is to name them.
  const std::string state_folder = redis.has_value() || config.state.path.empty()
                                       ? options.folder + "/state"
                                       : config.state.path;
  const bool server_syncs_state =
      options.stateful && config.state.sync && (redis.has_value() || config.state.store == "disk");

  SupervisorOptions supervisor;
  supervisor.workers = config.workers.processes;
  supervisor.server = [&](int ready_fd, int report_fd) {
    ChildSpec spec{.name = "macaw-server",
                   .log = log("server"),
                   .inherit = {ready_fd, report_fd, options.lock}};
    spec.argv = {server,
                 "--config",
                 options.config_file,
                 "--run-dir",
                 options.folder,
                 "--listen",
                 listen,
                 "--ready-fd",
                 absl::StrCat(ready_fd),
                 "--report-fd",
                 absl::StrCat(report_fd),
                 "--lock-fd",
                 absl::StrCat(options.lock)};
    if (server_syncs_state) spec.argv.insert(spec.argv.end(), {"--sync-state", state_folder});
    if (options.resume) spec.argv.push_back("--resume");
    if (!options.replay.empty()) spec.argv.insert(spec.argv.end(), {"--replay", options.replay});
    for (const uint64_t client : options.state_reset)
      spec.argv.insert(spec.argv.end(), {"--state-reset", absl::StrCat(client)});
    if (options.verbose) spec.argv.push_back("--verbose");
    return spec;
  };
  supervisor.worker = [&](uint32_t index, const std::string& address) {
    const std::string name = absl::StrCat("worker-", index);
    ChildSpec spec{.name = name, .log = log(name)};
    spec.argv = {worker,
                 "--config",
                 options.config_file,
                 "--server",
                 address,
                 "--name",
                 name,
                 "--slots",
                 absl::StrCat(slots),
                 "--scratch",
                 absl::StrCat(options.folder, "/scratch"),
                 "--state",
                 state_folder};
    if (server_syncs_state) spec.argv.push_back("--server-syncs-state");
    if (redis.has_value()) spec.argv.insert(spec.argv.end(), {"--state-url", redis->url()});
    spec.argv.insert(spec.argv.end(), {"--first-slot", absl::StrCat(index * slots)});
    if (options.trace)
      spec.argv.insert(spec.argv.end(),
                       {"--trace", absl::StrCat(options.folder, "/trace/", name, ".jsonl")});
    if (options.verbose) spec.argv.push_back("--verbose");
    return spec;
  };
  supervisor.on_row = [&](const std::string& row) {
    progress.OnRow(row);
    options.on_row();
    if (redis.has_value()) redis->OnProgress();
  };
  supervisor.say = [&](const std::string& message) { progress.Say(message); };
  if (redis.has_value()) {
    supervisor.services.push_back({.fd = [&redis] { return redis->fd(); },
                                   .attend = [&] { return redis->Attend(supervisor.say); },
                                   .process = [&redis] { return redis->process(); }});
  }

  absl::StatusOr<RunEnd> end = Supervise(supervisor);
  progress.Finish();
  return end;
}

}  // namespace macaw::cli
