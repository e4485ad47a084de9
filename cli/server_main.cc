// macaw-server: runs the rounds of one run. Links no LibTorch.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/config/client_state.h"
#include "cli/config/notes.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/config/settings.h"
#include "cli/config/writer.h"
#include "cli/identity/certificates.h"
#include "cli/process/callers.h"
#include "cli/process/exit.h"
#include "cli/process/limits.h"
#include "cli/process/lock.h"
#include "cli/process/notify.h"
#include "cli/process/row_reporter.h"
#include "cli/process/signals.h"
#include "cli/process/steps.h"
#include "cli/standing/page_address.h"
#include "cli/standing/standing.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/memory.h"
#include "core/status.h"
#include "data/dataset.h"
#include "identity/audit.h"
#include "identity/authority.h"
#include "proto/http/web_server.h"
#include "proto/wire/address.h"
#include "proto/wire/admin.h"
#include "proto/wire/listener.h"
#include "proto/wire/remote.h"
#include "server/checkpoint.h"
#include "server/coordinator.h"
#include "server/journal/recovery.h"
#include "server/paced_calls.h"
#include "state/sync_folder.h"

namespace macaw::cli {
namespace {

// Longer than the fleet's server takes for its last answers (proto/wire/server.cc).
constexpr Duration kCloseGrace = std::chrono::seconds(13);

struct ServerArguments {
  std::string config, run_dir, listen, sync_state, replay, callers, authority, admin, http,
      http_token;
  bool resume = false, resume_if_begun = false;
  int ready_fd = -1, report_fd = -1, lock_fd = -1, step_fd = -1;
  std::vector<uint64_t> state_reset;
  bool by_hand() const { return lock_fd < 0; }  // not by `macaw simulate`, which locks the folder
  std::string kept_config() const { return run_dir + "/config.toml"; }
  std::string node_config() const { return run_dir + "/node.toml"; }  // the part for the workers
  std::string address_file() const { return run_dir + "/address"; }   // for workers with --run-dir
};

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
  options.program = "macaw-server " MACAW_VERSION;
  options.run_dir = arguments.run_dir;
  options.resume = arguments.resume;
  options.stepwise = arguments.step_fd >= 0;
  options.config = config.node.server;
  const worker::WorkersConfig& workers = config.node.workers;
  if (options.config.workers == 0) options.config.workers = workers.processes + workers.owners;
  for (const uint64_t client : arguments.state_reset)
    options.reset_states.push_back(ClientId(client));
  return options;
}

// A restarted server listens at the old address, where its workers look for it.
std::string ListenAt(const Config& config, const ServerArguments& arguments) {
  if (!arguments.listen.empty()) return arguments.listen;
  if (arguments.by_hand() && arguments.resume && config.node.server.keeps_commits()) {
    const absl::StatusOr<std::string> before = ReadFile(arguments.address_file());
    if (before.ok()) return std::string(absl::StripAsciiWhitespace(*before));
  }
  return config.node.server.listen.empty() ? "127.0.0.1:0" : config.node.server.listen;
}

// Announces the address to dial, to the parent process or to the user.
void Announce(const std::string& address, int ready_fd) {
  const std::string line = absl::StrCat(address, "\n");
  if (ready_fd < 0) {
    std::cout << "listening on " << line << std::flush;
    return;
  }
  [[maybe_unused]] const ssize_t ignored = ::write(ready_fd, line.data(), line.size());
  ::close(ready_fd);
}

// Writes into the folder what `macaw simulate` would have written when the server is started by
// hand: the configuration, which --resume, `macaw state` and workers (--run-dir) read.
absl::Status KeepConfig(Config config, const ServerArguments& arguments) {
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
              << arguments.run_dir << " (on this host), or set state.path or state.url in its "
              << "configuration" << std::endl;
  }
  return absl::OkStatus();
}

// Everything that answers calls.
struct Listeners {
  std::unique_ptr<server::PacedCalls> paced;  // what `fleet` calls over TLS; else null
  std::unique_ptr<wire::FleetServer> fleet;
  std::unique_ptr<wire::AdminServer> admin;  // may be null
  std::unique_ptr<http::WebServer> web;      // may be null
};

// Closes the connections after everything is on disk and the workers have been told. Closing is a
// courtesy: the process must end even if a peer holds a connection open, or a library cannot start
// a thread any more.
void CloseWithin(Duration patience, std::unique_ptr<Listeners> listeners, int code) {
  auto closed = std::make_shared<std::promise<void>>();
  std::future<void> over = closed->get_future();
  // The thread gets a plain pointer: if the thread cannot be started, an owner in its arguments
  // would close the server here.
  Listeners* const open = listeners.release();
  try {
    std::thread([open, closed] {
      delete open;
      closed->set_value();
    }).detach();
    if (over.wait_for(patience) == std::future_status::ready) return;
  } catch (const std::system_error&) {  // no thread could be started
  }
  Logger("server").Warning("connections_left_open");
  std::_Exit(code);
}

// The most clients that a part may have. The size of a cohort varies if each client is drawn on its
// own; twice the mean plus a thousand is more than any draw.
uint64_t MostClientsAPart(const RunPlan& run) {
  const double asked = static_cast<double>(run.cohort.size) * run.cohort.over_selection;
  return 1000 + 2 * static_cast<uint64_t>(std::min(asked, 1e15));
}

// Whether another start on the same folder would end the same way.
bool Pointless(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsAlreadyExists(status) || absl::IsNotFound(status) || absl::IsDataLoss(status) ||
         absl::IsAborted(status) || absl::IsUnimplemented(status) || absl::IsOutOfRange(status);
}

int ReportError(const absl::Status& status) {
  PrintError("macaw-server", status.message());
  return Pointless(status) ? kExitUsage : kExitFailed;
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
  Fd lock;             // of the folder; not open if `macaw simulate` holds it
};

absl::StatusOr<Prepared> Prepare(const ServerArguments& arguments) {
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(arguments.config));
  MACAW_ASSIGN_OR_RETURN(sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(Config config, ReadResolved(document, catalogue));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  MACAW_ASSIGN_OR_RETURN(FlatVector initial, InitialWeights(config, spec));
  if (arguments.by_hand()) {
    for (const std::string& note : ScheduleNotes(config.run))
      Logger("server").Warning(absl::StrCat("schedule ", note));
  }
  if (!arguments.resume) MACAW_RETURN_IF_ERROR(MakeDirectories(arguments.run_dir));
  Fd lock;
  if (arguments.by_hand()) {
    MACAW_ASSIGN_OR_RETURN(lock, LockFolder(arguments.run_dir));
    MACAW_RETURN_IF_ERROR(CheckStates(config, spec, catalogue, arguments));
  }
  return Prepared{std::move(catalogue), std::move(config), std::move(initial), std::move(lock)};
}

// Decides in each round what was decided in the logged run: which clients are given up, and whether
// the round is dropped.
absl::Status FollowLog(const std::string& file, server::Options& options) {
  MACAW_ASSIGN_OR_RETURN(const server::log::History history, server::log::ReadHistory(file));
  if (history.sessions().empty())
    return absl::DataLossError(absl::StrCat(file, " tells of no run"));
  options.replays = history.sessions().front().run;
  options.decisions = history.decisions();
  return absl::OkStatus();
}

// How the fleet is answered.
absl::StatusOr<wire::ServerOptions> FleetOptions(const Config& config,
                                                 const ServerArguments& arguments,
                                                 const Doorkeeper& door) {
  wire::ServerOptions options{.listen = ListenAt(config, arguments),
                              .max_part_clients = MostClientsAPart(config.run),
                              .authority = door.authority.get(),
                              .audit = door.audit.get()};
  if (config.node.server.keeps_commits())
    options.partial_uploads = server::UploadsFolder(arguments.run_dir);
  if (door.authority == nullptr && arguments.by_hand() && !wire::IsPrivate(options.listen)) {
    std::cout << "connections are not encrypted, and every user of this machine may join: "
              << "--authority (made by `macaw pki init`) changes both" << std::endl;
  }
  if (!arguments.callers.empty()) {
    MACAW_ASSIGN_OR_RETURN(Callers callers, Callers::Read(arguments.callers));
    options.identify = [callers = std::move(callers)](absl::string_view token) {
      return callers.Identify(token);
    };
  }
  return options;
}

// Starts to answer the calls of the fleet.
absl::StatusOr<std::unique_ptr<wire::FleetServer>> AnswerFleet(
    const wire::ServerOptions& options, std::unique_ptr<wire::Listener> listener,
    const ServerArguments& arguments, fleet::FleetHandler& handler) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<wire::FleetServer> fleet,
                         wire::FleetServer::Start(options, std::move(listener), handler));
  if (arguments.by_hand()) {
    MACAW_RETURN_IF_ERROR(
        AtomicWriteFile(arguments.address_file(), absl::StrCat(fleet->address(), "\n")));
  }
  Announce(fleet->address(), arguments.ready_fd);
  NotifyManager("READY=1");
  return fleet;
}

absl::StatusOr<server::Outcome> AwaitEnd(server::Coordinator& coordinator) {
  const Watchdog watchdog(
      [&coordinator] { coordinator.AskEngine([] { NotifyManager("WATCHDOG=1"); }); });
  return coordinator.Wait();
}

// Starts to answer operators: in the run's folder, unless the configuration says where. A folder in
// which no socket can be made (its path is too long, or the file system has none) does without.
absl::StatusOr<std::unique_ptr<wire::AdminServer>> ListenToOperators(
    const server::ServerConfig& config, const ServerArguments& arguments, const Doorkeeper& door,
    server::Coordinator& coordinator) {
  const std::string file = arguments.run_dir + "/admin-address";
  std::error_code ignored;
  std::filesystem::remove(file, ignored);  // of an earlier session
  if (config.admin == "off") return nullptr;
  if (!config.admin.empty()) {
    const wire::AdminOptions options{
        .listen = config.admin, .authority = door.authority.get(), .audit = door.audit.get()};
    MACAW_ASSIGN_OR_RETURN(auto admin, wire::AdminServer::Start(options, coordinator.operations()));
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(file, absl::StrCat(admin->address(), "\n")));
    return admin;
  }
  auto admin =
      wire::AdminServer::Start({.listen = absl::StrCat("unix:", arguments.run_dir, "/admin.sock")},
                               coordinator.operations());
  if (admin.ok()) return admin;
  Logger("server").Warning(absl::StrCat("no_operators ", admin.status().message(),
                                        "; server.admin can name another address"));
  return nullptr;
}

absl::StatusOr<std::unique_ptr<http::WebServer>> ListenForBrowsers(
    const server::ServerConfig& config, const ServerArguments& arguments,
    server::Coordinator& coordinator) {
  if (config.http.empty()) return nullptr;
  MACAW_ASSIGN_OR_RETURN(
      const PageAddress page,
      ReadPageAddress(config.http, config.http_token, "server.http", "server.http_token"));
  const http::WebOptions options{.host = page.host,
                                 .port = page.port,
                                 .token = page.token,
                                 .rows = arguments.run_dir + "/metrics.jsonl"};
  MACAW_ASSIGN_OR_RETURN(auto web, http::WebServer::Start(options, coordinator.operations()));
  Logger("server").Info(absl::StrCat("status_page http://", options.host, ":", web->port(), "/"));
  if (arguments.by_hand())
    std::cout << "status page at http://" << options.host << ":" << web->port() << "/" << std::endl;
  return web;
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

// Answers everybody, the fleet last.
absl::StatusOr<std::unique_ptr<Listeners>> StartToAnswer(const Config& config,
                                                         const ServerArguments& arguments,
                                                         const Doorkeeper& door,
                                                         const wire::ServerOptions& fleet_options,
                                                         std::unique_ptr<wire::Listener> listener,
                                                         server::Coordinator& coordinator) {
  auto listeners = std::make_unique<Listeners>();
  server::ServerConfig own = config.node.server;
  if (!arguments.admin.empty()) own.admin = arguments.admin;
  if (!arguments.http.empty()) own.http = arguments.http;
  if (!arguments.http_token.empty()) own.http_token = arguments.http_token;
  if (arguments.by_hand()) MACAW_RETURN_IF_ERROR(KeepConfig(config, arguments));
  MACAW_ASSIGN_OR_RETURN(listeners->admin, ListenToOperators(own, arguments, door, coordinator));
  MACAW_ASSIGN_OR_RETURN(listeners->web, ListenForBrowsers(own, arguments, coordinator));
  fleet::FleetHandler* handler = &coordinator;
  if (door.authority != nullptr) {
    listeners->paced = std::make_unique<server::PacedCalls>(coordinator);
    handler = listeners->paced.get();
  }
  MACAW_ASSIGN_OR_RETURN(listeners->fleet,
                         AnswerFleet(fleet_options, std::move(listener), arguments, *handler));
  return listeners;
}

absl::StatusOr<int> Serve(const ServerArguments& arguments, SignalFd& signals) {
  MACAW_RETURN_IF_ERROR(EnsureOpenFiles());
  MACAW_ASSIGN_OR_RETURN(Prepared prepared, Prepare(arguments));
  const algorithms::Registry& registry = prepared.catalogue.algorithms();
  MACAW_ASSIGN_OR_RETURN(const Doorkeeper door, OpenDoor(arguments.authority.empty()
                                                             ? prepared.config.node.server.authority
                                                             : arguments.authority));

  server::Options options = OptionsFrom(prepared.config, arguments, registry);
  if (door.authority != nullptr) MACAW_RETURN_IF_ERROR(CheckForFleet(options.run));
  if (door.authority != nullptr)
    options.owners = [authority = door.authority.get()] { return authority->Owners(); };
  MACAW_RETURN_IF_ERROR(EnsureOpenFiles(options.config.workers));
  if (!arguments.replay.empty()) MACAW_RETURN_IF_ERROR(FollowLog(arguments.replay, options));
  RowReporter reporter(arguments.report_fd);
  if (arguments.report_fd < 0 && !prepared.config.node.track.to.empty()) {
    Logger("server").Info(absl::StrCat("trackers are not the server's: `macaw track ",
                                       arguments.run_dir, " --follow` serves them"));
  }
  options.on_row = [&reporter](const std::string& row) { reporter.Report(row); };
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
  absl::StatusOr<std::unique_ptr<Listeners>> listeners = StartToAnswer(
      prepared.config, arguments, door, fleet_options, std::move(listener), *coordinator);
  if (!listeners.ok()) {  // an operators' port that is taken does not cost the open round either
    coordinator->Suspend();
    coordinator->Wait().IgnoreError();
    return listeners.status();
  }
  const int code = Conclude(AwaitEnd(*coordinator), reporter);
  CloseWithin(kCloseGrace, *std::move(listeners), code);
  return code;
}

// --standing, with the options that it shares with the server of one run.
int StandWith(const ServerArguments& arguments, StandingOptions options) {
  const bool foreign = !arguments.config.empty() || arguments.resume || arguments.resume_if_begun ||
                       !arguments.replay.empty() || !arguments.callers.empty();
  if (foreign || arguments.listen.empty()) {
    return ReportError(absl::InvalidArgumentError(
        foreign
            ? "--standing goes with --listen, --authority, --admin, --http, --http-token, --run-admin and "
              "--run-http only"
            : "--standing needs --listen: workers look for each run there"));
  }
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
  ExplainUncaught("macaw-server");
  ServerArguments arguments;
  StandingOptions standing;
  CLI::App app("The server of a run: hands out clients, adds up, keeps checkpoints",
               "macaw-server");
  app.set_version_flag("--version", "macaw-server " MACAW_VERSION);
  app.add_option("--config", arguments.config,
                 "The run's configuration (TOML; default with --resume: the run folder's)");
  CLI::Option* run_dir = app.add_option("--run-dir", arguments.run_dir,
                                        "Where everything that the run leaves behind goes");
  app.add_option("--standing", standing.folder,
                 "Instead of one run: do the runs that `macaw admin submit` sends, one after the "
                 "other. Their folders are in this one")
      ->excludes(run_dir);
  app.add_option("--run-admin", standing.run_admin,
                 "With --standing: server.admin of each run (default: a socket in its folder)");
  app.add_option("--admin", arguments.admin,
                 "Where operators reach the server (default: server.admin); with --standing, where "
                 "runs are submitted besides queue.sock in the folder");
  app.add_option(
      "--http", arguments.http,
      "HOST:PORT of the status page (default: server.http); with --standing, of the page "
      "of all runs");
  app.add_option("--http-token", arguments.http_token,
                 "A file whose first line the page asks for (default: server.http_token)");
  app.add_option("--run-http", standing.run_http,
                 "With --standing: server.http of each run (default: none)");
  app.add_option("--sync-state", arguments.sync_state,
                 "A folder of client states on this host, made durable before each checkpoint");
  app.add_option("--listen", arguments.listen,
                 "host:port, :0 for a free port, or unix:PATH (default: server.listen)");
  app.add_option("--replay", arguments.replay,
                 "A log of rounds: clients that it gives up are not trained (`macaw replay`)");
  app.add_option("--callers", arguments.callers,
                 "A JSON list of {\"node\": NAME, \"token\": SECRET}: only these are answered "
                 "(default: every node that can reach the address)");
  app.add_option("--authority", arguments.authority,
                 "The folder that `macaw pki init` made: TLS, and only nodes with a certificate "
                 "are answered (default: server.authority)")
      ->excludes("--callers");
  app.add_flag("--resume", arguments.resume, "Go on from the newest checkpoint of the folder");
  app.add_flag("--resume-if-begun", arguments.resume_if_begun,
               "For service managers: --resume if a run has begun in the folder, else begin it; "
               "nothing if it is over");
  app.add_option("--state-reset", arguments.state_reset,
                 "With --resume: this client gives its state up and starts afresh")
      ->allow_extra_args(false);
  app.add_option("--ready-fd", arguments.ready_fd,
                 "Write the address to this descriptor once it can be dialled");
  app.add_option("--report-fd", arguments.report_fd,
                 "Write each finished row of metrics.jsonl to this descriptor");
  app.add_option("--step-fd", arguments.step_fd,
                 "Wait after each round for a line from this descriptor: \"go ROUND\" or \"stop "
                 "WHY\"");
  app.add_option("--lock-fd", arguments.lock_fd,
                 "A descriptor that holds the run's folder already (`macaw simulate` gives it)");
  CLI11_PARSE(app, argc, argv);
  if (arguments.resume_if_begun) arguments.resume |= server::HasBegun(arguments.run_dir);
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
