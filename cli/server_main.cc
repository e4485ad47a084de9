// macaw-server: runs the rounds of one run. Links no LibTorch.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/command_line.h"
#include "cli/config/client_state.h"
#include "cli/config/devices.h"
#include "cli/config/inputs.h"
#include "cli/config/notes.h"
#include "cli/config/other_side.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/config/settings.h"
#include "cli/config/writer.h"
#include "cli/identity/certificates.h"
#include "cli/listeners.h"
#include "cli/process/exit.h"
#include "cli/process/kept_places.h"
#include "cli/process/limits.h"
#include "cli/process/lock.h"
#include "cli/process/notify.h"
#include "cli/process/row_reporter.h"
#include "cli/process/signals.h"
#include "cli/process/steps.h"
#include "cli/server_arguments.h"
#include "cli/standing/standing.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/memory.h"
#include "core/page_pool.h"
#include "core/shell.h"
#include "core/status.h"
#include "data/dataset.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "proto/wire/listener.h"
#include "proto/wire/remote.h"
#include "server/checkpoint.h"
#include "server/coordinator.h"
#include "server/journal/recovery.h"
#include "state/sync_folder.h"

namespace macaw::cli {
namespace {

// Longer than the fleet's server takes for its last answers (proto/wire/server.cc).
constexpr Duration kCloseGrace = std::chrono::seconds(13);
// How long the last rows wait for a reader that takes none.
constexpr Duration kReaderGrace = std::chrono::seconds(2);

// A configuration that `macaw simulate` wrote is complete. Any other may leave out what follows
// from its data.
absl::StatusOr<Config> ReadResolved(const Document& document, const sdk::Catalogue& catalogue) {
  MACAW_ASSIGN_OR_RETURN(Config config, ReadConfig(document, {}, catalogue));
  if (IsResolved(config.run)) return config;
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  MACAW_RETURN_IF_ERROR(Resolve(config, *dataset, catalogue));
  return config;
}

server::Options OptionsFrom(const Config& config, const ServerArguments& arguments,
                            const algorithms::Registry& registry) {
  server::Options options;
  options.run = config.run;
  options.settings = SettingsJson(config, registry);
  options.inputs = InputDigests().Json(config);
  options.program = "macaw-server " MACAW_VERSION;
  options.run_dir = arguments.run_dir;
  options.resume = arguments.resume;
  options.keeps_places = !arguments.by_hand();
  options.stepwise = arguments.step_fd >= 0;
  options.config = config.node.server;
  const worker::WorkersConfig& workers = config.node.workers;
  if (options.config.workers == 0) options.config.workers = workers.processes + workers.owners;
  for (const uint64_t client : arguments.state_reset)
    options.reset_states.push_back(ClientId(client));
  for (const uint32_t round : arguments.evaluate_after) options.evaluate_after.insert(Round(round));
  return options;
}

// Writes into the folder what `macaw simulate` would have written when the server is started by
// hand: the configuration, which --resume, `macaw state` and workers (--run-dir) read; and which
// authority it has.
absl::Status KeepConfig(Config config, const ServerArguments& arguments,
                        const std::string& authority) {
  MACAW_RETURN_IF_ERROR(KeepAuthority(arguments.run_dir, authority));
  std::error_code error;
  if (std::filesystem::equivalent(arguments.config, arguments.kept_config(), error)) {
    return absl::OkStatus();
  }
  if (!arguments.listen.empty()) config.node.server.listen = arguments.listen;
  config.node.server.out =
      std::filesystem::absolute(arguments.run_dir, error).lexically_normal().string();
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(arguments.node_config(), NodeToml(config.node)));
  return AtomicWriteFile(
      arguments.kept_config(),
      absl::StrCat("# What `macaw-server` ran, defaults included.\n", EffectiveToml(config)));
}

// Checks where the clients' states will be. Only the workers use that place. When workers are
// started by hand, each is told separately, so an error is reported here before anybody waits for a
// worker that was not told.
absl::Status CheckStates(const Config& config, const models::ModelSpec& spec,
                         const sdk::Catalogue& catalogue, const ServerArguments& arguments) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<algorithms::NamedLayout> items,
                         StateItemsOf(config, spec, catalogue.algorithms()));
  if (items.empty()) return absl::OkStatus();
  MACAW_RETURN_IF_ERROR(CheckStateStore(
      config, arguments.resume && server::HasCheckpoint(arguments.run_dir) ? Start::kResumed
                                                                           : Start::kNew));
  if (config.node.state.url == "spawn" && config.node.state.store == "redis") {
    return absl::InvalidArgumentError(
        "state.url = \"spawn\" is for `macaw simulate`: start a redis-server and name it here and "
        "in the workers' configuration (unix:/path or redis://host:port)");
  }
  if (config.node.state.store == "disk" && config.node.state.path.empty()) {
    std::cout << "the clients of " << config.run.algorithm.name
              << " keep a state between rounds: start each worker with --run-dir "
              << ForShell(arguments.run_dir)
              << " (on this host), or set state.path or state.url in its "
              << "configuration" << std::endl;
  }
  return absl::OkStatus();
}

int ReportError(const absl::Status& status) {
  PrintError("macaw-server", status.message());
  return WouldEndTheSame(status, Starts::kServer) ? kExitUsage : kExitFailed;
}

// Says how the run ended and returns the exit code.
int Conclude(const absl::StatusOr<server::Outcome>& outcome, RowReporter& reporter) {
  if (!outcome.ok()) return ReportError(outcome.status());
  if (!outcome->warning.empty()) {
    Logger("server").Warning(outcome->warning);
    reporter.Warn(outcome->warning);
  }
  using Kind = server::Outcome::Kind;
  if (outcome->kind == Kind::kSuspended) return kExitInterrupted;
  Logger("server").Info(absl::StrCat("run ended rounds=", outcome->rounds,
                                     outcome->reason.empty() ? "" : " reason=", outcome->reason));
  return outcome->kind == Kind::kInterrupted ? kExitInterrupted : kExitOk;
}

// What a server knows before it opens the run's folder.
struct Prepared {
  sdk::Catalogue catalogue;
  Config config;
  FlatVector initial;  // the model before round 1
  AuthorityChoice authority;
  Fd lock;  // of the folder; not open if `macaw simulate` holds it
};

absl::StatusOr<AuthorityChoice> AuthorityOf(const ServerArguments& arguments,
                                            const Config& config) {
  const std::string& named =
      arguments.authority.empty() ? config.node.server.authority : arguments.authority;
  return ChooseAuthority(arguments.run_dir, arguments.by_hand() && arguments.resume, named);
}

absl::StatusOr<Doorkeeper> OpenDoorOf(const AuthorityChoice& authority) {
  absl::StatusOr<Doorkeeper> door = OpenDoor(authority.folder);
  if (door.ok() || !authority.remembered) return door;
  return ExplainRemembered(door.status());
}

absl::Status CheckPage(const ServerArguments& arguments, const server::ServerConfig& config) {
  if (arguments.http_token.empty() || !arguments.http.empty() || !config.http.empty())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--http-token is of the status page: give --http or server.http, too");
}

absl::StatusOr<Prepared> Prepare(const ServerArguments& arguments) {
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(arguments.config));
  MACAW_ASSIGN_OR_RETURN(sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(Config config, ReadResolved(document, catalogue));
  MACAW_RETURN_IF_ERROR(CheckPage(arguments, config.node.server));
  if (const uint64_t from = config.node.server.files_from; from > 0) {
    MACAW_RETURN_IF_ERROR(MakeDirectories(arguments.run_dir));
    MACAW_RETURN_IF_ERROR(
        Annotate(KeepLargeBlocksIn(arguments.run_dir, from), "server.files_from"));
  }
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  MACAW_ASSIGN_OR_RETURN(FlatVector initial, InitialWeights(config, spec));
  if (arguments.by_hand()) {
    for (const std::string& note : ScheduleNotes(config.run))
      Logger("server").Warning(absl::StrCat("schedule ", note));
  }
  MACAW_ASSIGN_OR_RETURN(AuthorityChoice authority, AuthorityOf(arguments, config));
  if (const std::string note = NoteOnNodesTables(config);
      !note.empty() && !authority.folder.empty())
    Logger("server").Warning(absl::StrCat("without_effect ", note));
  if (!arguments.resume) MACAW_RETURN_IF_ERROR(MakeDirectories(arguments.run_dir));
  Fd lock;
  if (arguments.by_hand()) {
    MACAW_ASSIGN_OR_RETURN(lock, LockFolder(arguments.run_dir));
    MACAW_RETURN_IF_ERROR(CheckStates(config, spec, catalogue, arguments));
  }
  return Prepared{std::move(catalogue), std::move(config), std::move(initial), std::move(authority),
                  std::move(lock)};
}

// The clients' devices, of a run with virtual time.
absl::Status OpenDevices(Config& config, const sdk::Catalogue& catalogue,
                         server::Options& options) {
  if (!config.run.devices.on()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const virtual_time::Tables tables, ReadDevices(config));
  options.run.devices = config.run.devices;
  std::unique_ptr<data::Dataset> dataset;  // for the names alone
  virtual_time::Population population{.clients = config.run.clients};
  if (config.run.devices.assign == "name" && config.node.workers.owners > 0) {
    population.name = [](ClientId client) { return absl::StrCat(client.value); };
  } else if (config.run.devices.assign == "name") {
    MACAW_ASSIGN_OR_RETURN(dataset, catalogue.OpenDataset(config.node.data, config.node.partition));
    population.name = [&dataset](ClientId client) { return dataset->ClientName(client); };
  }
  const DevicesConfig& devices = config.run.devices;
  MACAW_ASSIGN_OR_RETURN(options.devices, virtual_time::MakeDevices(devices, tables, population));
  MACAW_ASSIGN_OR_RETURN(options.presence, virtual_time::MakePresence(devices, tables, population));
  return absl::OkStatus();
}

// Decides in each round what was decided in the logged run: which clients are given up, and whether
// the round is dropped. `without`: these clients are given up in every round.
absl::Status FollowLog(const std::string& file, const std::vector<uint64_t>& without,
                       server::Options& options) {
  MACAW_ASSIGN_OR_RETURN(const server::log::History history, server::log::ReadHistory(file));
  if (history.sessions().empty())
    return absl::DataLossError(absl::StrCat(file, " tells of no run"));
  options.replays = history.sessions().front().run;
  options.decisions = history.decisions();
  options.keeps_places = history.sessions().front().keeps_places;
  std::vector<ClientId> clients;
  for (const uint64_t client : without) clients.emplace_back(client);
  server::log::LeaveOut(clients, history, options.decisions);
  return absl::OkStatus();
}

absl::StatusOr<server::Outcome> AwaitEnd(server::Coordinator& coordinator) {
  const Watchdog watchdog(
      [&coordinator] { coordinator.AskEngine([] { NotifyManager("WATCHDOG=1"); }); });
  return coordinator.Wait();
}

// Takes the lines of `macaw simulate --step`.
std::optional<StepThread> FollowSteps(const ServerArguments& arguments,
                                      server::Coordinator& coordinator) {
  if (arguments.step_fd < 0) return std::nullopt;
  return std::optional<StepThread>(
      std::in_place, arguments.step_fd,
      StepThread::Steps{
          .go_on_to = [&coordinator](Round round) { coordinator.GoOnTo(round); },
          .stop = [&coordinator](std::string why) { coordinator.StopHere(std::move(why)); },
          .ended = [&coordinator] { coordinator.Interrupt(); }});
}

absl::StatusOr<int> Serve(const ServerArguments& arguments, SignalFd& signals) {
  MACAW_RETURN_IF_ERROR(EnsureOpenFiles());
  MACAW_ASSIGN_OR_RETURN(Prepared prepared, Prepare(arguments));
  const algorithms::Registry& registry = prepared.catalogue.algorithms();
  MACAW_ASSIGN_OR_RETURN(const Doorkeeper door, OpenDoorOf(prepared.authority));

  server::Options options = OptionsFrom(prepared.config, arguments, registry);
  if (door.authority != nullptr) MACAW_RETURN_IF_ERROR(CheckForFleet(options.run));
  if (door.authority != nullptr)
    options.owners = [authority = door.authority.get()] { return authority->Owners(); };
  MACAW_RETURN_IF_ERROR(EnsureOpenFiles(options.config.workers));
  if (arguments.by_hand() && options.run.devices.on()) {
    return absl::InvalidArgumentError(
        "[devices] is for `macaw simulate`: the devices of a server's clients take the time that "
        "they take; take [devices] out");
  }
  MACAW_RETURN_IF_ERROR(OpenDevices(prepared.config, prepared.catalogue, options));
  if (!arguments.replay.empty())
    MACAW_RETURN_IF_ERROR(FollowLog(arguments.replay, arguments.without, options));
  RowReporter reporter(arguments.report_fd);
  if (arguments.report_fd < 0 && !prepared.config.node.track.to.empty()) {
    Logger("server").Info(absl::StrCat("trackers are not the server's: `macaw track ",
                                       ForShell(arguments.run_dir), " --follow` serves them"));
  }
  options.on_row = [&reporter](const std::string& row) { reporter.Report(row); };
  options.on_warning = [&reporter](const std::string& warning) { reporter.Warn(warning); };
  if (!arguments.sync_state.empty()) {
    options.before_checkpoint = [folder = arguments.sync_state] {
      return state::SyncFolder(folder);
    };
  }
  // Before the run is opened: while another program has the port, no start of this one changes the
  // folder.
  MACAW_ASSIGN_OR_RETURN(const wire::ServerOptions fleet_options,
                         FleetOptions(prepared.config, arguments, door));
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<wire::Listener> listener,
                         wire::FleetServer::Bind(fleet_options));
  MACAW_ASSIGN_OR_RETURN(
      const std::unique_ptr<server::Coordinator> coordinator,
      server::Coordinator::Start(std::move(options), std::move(prepared.initial), registry));
  // A service manager sends SIGTERM when it stops or upgrades a server that will be back.
  const SignalThread watcher(signals, [&coordinator](int signal) {
    signal == SIGTERM ? coordinator->Suspend() : coordinator->Interrupt();
  });
  const std::optional<StepThread> steps = FollowSteps(arguments, *coordinator);
  const auto answer = [&]() -> absl::StatusOr<std::unique_ptr<Listeners>> {
    if (arguments.by_hand())
      MACAW_RETURN_IF_ERROR(KeepConfig(prepared.config, arguments, prepared.authority.folder));
    return StartToAnswer(prepared.config, arguments, door, fleet_options, std::move(listener),
                         *coordinator);
  };
  absl::StatusOr<std::unique_ptr<Listeners>> listeners = answer();
  if (!listeners.ok()) {  // an operators' port that is taken does not cost the open round either
    coordinator->Suspend();
    coordinator->Wait().IgnoreError();
    return listeners.status();
  }
  const int code = Conclude(AwaitEnd(*coordinator), reporter);
  reporter.Finish(kReaderGrace);
  CloseWithin(kCloseGrace, *std::move(listeners), code);
  return code;
}

// --standing, with the options that it shares with the server of one run.
int StandWith(const ServerArguments& arguments, StandingOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  InitLogging("macaw-server");
  options.listen = arguments.listen;
  options.authority = arguments.authority;
  options.admin = arguments.admin;
  options.http = arguments.http;
  options.http_token = arguments.http_token;
  absl::StatusOr<SignalFd> signals = SignalFd::Open();
  const absl::StatusOr<int> code = signals.ok() ? Stand(options, *signals) : signals.status();
  return code.ok() ? *code : ReportError(code.status());
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  ExplainEndings("macaw-server", Endings::kLogLine);
  ServerArguments arguments;
  StandingOptions standing;
  CLI::App app("The server of a run: hands out clients, adds up, keeps checkpoints",
               "macaw-server");
  app.set_version_flag("--version", "macaw-server " MACAW_VERSION);
  AddOptions(app, arguments, standing);
  if (const auto code = ParseCommandLine(app, "macaw-server", argc, argv)) return *code;
  for (const std::string& wrong : {MisplacedOption(app), ClosedDescriptor(arguments)}) {
    if (wrong.empty()) continue;
    PrintError("macaw-server", wrong);
    return kExitUsage;
  }
  if (arguments.resume_if_begun) arguments.resume |= server::HasBegun(arguments.run_dir);
  if (!arguments.resume) arguments.state_reset.clear();  // nothing has begun: there are no states
  if (arguments.config.empty() && arguments.resume) arguments.config = arguments.kept_config();
  if (!standing.folder.empty()) return StandWith(arguments, std::move(standing));
  if (arguments.run_dir.empty() || arguments.config.empty()) {
    PrintError("macaw-server", "--run-dir is required, and --config or --resume; or --standing");
    return kExitUsage;
  }

  KeepFreedMemory();
  ::signal(SIGPIPE, SIG_IGN);
  InitLogging("macaw-server");
  absl::StatusOr<SignalFd> signals = SignalFd::Open();
  const absl::StatusOr<int> code = signals.ok() ? Serve(arguments, *signals) : signals.status();
  if (arguments.resume_if_begun && absl::IsOutOfRange(code.status())) {
    Logger("server").Info(absl::StrCat("nothing_to_do ", code.status().message()));
    return kExitOk;
  }
  return code.ok() ? *code : ReportError(code.status());
}

}  // namespace
}  // namespace macaw::cli

int main(int argc, char** argv) { return macaw::cli::Main(argc, argv); }
