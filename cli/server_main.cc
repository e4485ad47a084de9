// macaw-server: runs the rounds of one run. Links no LibTorch.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/config/settings.h"
#include "cli/process/row_reporter.h"
#include "cli/process/signals.h"
#include "cli/process/supervisor.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/memory.h"
#include "core/status.h"
#include "data/dataset.h"
#include "proto/wire/remote.h"
#include "server/coordinator.h"
#include "state/sync_folder.h"

namespace macaw::cli {
namespace {

constexpr Duration kCloseGrace = std::chrono::seconds(1);

struct ServerArguments {
  std::string config, run_dir, listen, sync_state;
  bool resume = false, verbose = false;
  int ready_fd = -1, report_fd = -1;
  std::vector<uint64_t> state_reset;
};

// A configuration that `macaw simulate` wrote stands alone; any other may leave out what its data
// says.
absl::StatusOr<Config> ReadResolved(const ServerArguments& arguments,
                                    const sdk::Catalogue& catalogue) {
  MACAW_ASSIGN_OR_RETURN(Config config, ReadConfig(arguments.config, {}, catalogue));
  const bool resolved = !config.run.model.input_shape.empty() && config.run.model.classes > 0 &&
                        config.task != "auto" && config.cohort_fraction == 0 &&
                        config.own_transform;
  if (resolved) {
    // No data is asked: the task is what the file says.
    config.run.task = TaskOf(config.task);
    return config;
  }
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.data, config.partition));
  MACAW_RETURN_IF_ERROR(Resolve(config, dataset->info(), catalogue));
  return config;
}

server::Options OptionsFrom(const Config& config, const ServerArguments& arguments,
                            const algorithms::Registry& registry) {
  server::Options options;
  options.run = config.run;
  options.settings = SettingsJson(config, registry);
  options.run_dir = arguments.run_dir;
  options.resume = arguments.resume;
  options.checkpoint_every = config.output.checkpoint_every;
  options.lease_timeout = FromSeconds(config.server.lease_timeout);
  options.workers = config.server.workers > 0 ? config.server.workers : config.workers.processes;
  options.client_records = config.output.client_records;
  options.scheduling_policy = config.scheduler.policy;
  const StopSection& stop = config.output.stop;
  for (const uint64_t client : arguments.state_reset)
    options.reset_states.push_back(ClientId(client));
  options.stop = {stop.metric, stop.at_least, stop.has_at_least, stop.patience};
  return options;
}

// Tells whoever waits (the parent, or people) where to dial.
void Announce(const std::string& address, int ready_fd) {
  const std::string line = absl::StrCat(address, "\n");
  if (ready_fd < 0) {
    std::cout << "listening on " << line << std::flush;
    return;
  }
  [[maybe_unused]] const ssize_t ignored = ::write(ready_fd, line.data(), line.size());
  ::close(ready_fd);
}

// Closes the connections once everything is on disk and the workers have been told. That is a
// courtesy: a peer that holds one open must not keep the process from ending.
void CloseWithin(Duration patience, std::unique_ptr<wire::FleetServer> fleet, int code) {
  auto closed = std::make_shared<std::promise<void>>();
  std::future<void> over = closed->get_future();
  std::thread([fleet = std::move(fleet), closed]() mutable {
    fleet.reset();
    closed->set_value();
  }).detach();
  if (over.wait_for(patience) == std::future_status::ready) return;
  Logger("server").Warning("connections_left_open");
  std::_Exit(code);
}

// A cohort's size varies where each client is drawn on its own; twice the mean and a thousand are
// more than any draw.
uint64_t MostClientsAPart(const RunConfig& run) {
  const double asked = static_cast<double>(run.cohort.size) * run.cohort.over_selection;
  return 1000 + 2 * static_cast<uint64_t>(std::min(asked, 1e15));
}

absl::StatusOr<int> Serve(const ServerArguments& arguments, SignalFd& signals) {
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(arguments.config, {}));
  MACAW_ASSIGN_OR_RETURN(const Config config, ReadResolved(arguments, catalogue));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  MACAW_ASSIGN_OR_RETURN(FlatVector initial, InitialWeights(config, spec));
  MACAW_RETURN_IF_ERROR(MakeDirectories(arguments.run_dir));

  server::Options options = OptionsFrom(config, arguments, catalogue.algorithms());
  RowReporter reporter(arguments.report_fd);
  options.on_row = [&reporter](const std::string& row) { reporter.Report(row); };
  if (!arguments.sync_state.empty()) {
    options.before_checkpoint = [folder = arguments.sync_state] {
      return state::SyncFolder(folder);
    };
  }
  MACAW_ASSIGN_OR_RETURN(
      const std::unique_ptr<server::Coordinator> coordinator,
      server::Coordinator::Start(std::move(options), std::move(initial), catalogue.algorithms()));
  const SignalThread watcher(signals, [&coordinator](int) { coordinator->Interrupt(); });
  const std::string listen = !arguments.listen.empty()       ? arguments.listen
                             : !config.server.listen.empty() ? config.server.listen
                                                             : "127.0.0.1:0";
  MACAW_ASSIGN_OR_RETURN(
      std::unique_ptr<wire::FleetServer> fleet,
      wire::FleetServer::Start({.listen = listen, .max_part_clients = MostClientsAPart(config.run)},
                               *coordinator));
  Announce(fleet->address(), arguments.ready_fd);

  MACAW_ASSIGN_OR_RETURN(const server::Outcome outcome, coordinator->Wait());
  const Logger log("server");
  log.Info(absl::StrCat("run ended rounds=", outcome.rounds,
                        outcome.reason.empty() ? "" : " reason=", outcome.reason));
  const int code = outcome.kind == server::Outcome::Kind::kInterrupted ? kExitInterrupted : kExitOk;
  CloseWithin(kCloseGrace, std::move(fleet), code);
  return code;
}

// Whether another start on the same folder would end the same way.
bool Pointless(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsAlreadyExists(status) || absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsAborted(status) || absl::IsUnimplemented(status);
}

int Main(int argc, char** argv) {
  ServerArguments arguments;
  CLI::App app("The server of one run: hands out clients, adds up, keeps checkpoints",
               "macaw-server");
  app.set_version_flag("--version", "macaw-server " MACAW_VERSION);
  app.add_option("--config", arguments.config, "The run's configuration (TOML)")->required();
  app.add_option("--run-dir", arguments.run_dir, "Where everything that the run leaves behind goes")
      ->required();
  app.add_option("--sync-state", arguments.sync_state,
                 "A folder of client states on this host, made durable before each checkpoint");
  app.add_option("--listen", arguments.listen,
                 "host:port, :0 for a free port, or unix:PATH (default: server.listen)");
  app.add_flag("--resume", arguments.resume, "Go on from the newest checkpoint of the folder");
  app.add_option("--state-reset", arguments.state_reset,
                 "With --resume: this client gives its state up and starts afresh")
      ->allow_extra_args(false);
  app.add_flag("-v,--verbose", arguments.verbose, "Log a line a client");
  app.add_option("--ready-fd", arguments.ready_fd,
                 "Write the address to this descriptor once it can be dialled");
  app.add_option("--report-fd", arguments.report_fd,
                 "Write each finished row of metrics.jsonl to this descriptor");
  CLI11_PARSE(app, argc, argv);

  KeepFreedMemory();
  ::signal(SIGPIPE, SIG_IGN);
  InitLogging(arguments.verbose ? LogLevel::kDebug : LogLevel::kInfo, "macaw-server");
  absl::StatusOr<SignalFd> signals = SignalFd::Open();
  const absl::StatusOr<int> code = signals.ok() ? Serve(arguments, *signals) : signals.status();
  if (code.ok()) return *code;
  std::cerr << "macaw-server: error: " << code.status().message() << std::endl;
  return Pointless(code.status()) ? kExitUsage : kExitFailed;
}

}  // namespace
}  // namespace macaw::cli

int main(int argc, char** argv) { return macaw::cli::Main(argc, argv); }
