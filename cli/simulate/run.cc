#include "cli/simulate/run.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/config/client_state.h"
#include "cli/config/resolve.h"
#include "cli/process/callers.h"
#include "cli/process/programs.h"
#include "cli/process/row_reporter.h"
#include "cli/simulate/backend.h"
#include "cli/simulate/owners.h"
#include "cli/simulate/private_redis.h"
#include "cli/simulate/progress.h"
#include "cli/simulate/run_folder.h"
#include "cli/track/tracking.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/shell.h"
#include "core/status.h"
#include "scheduler/cohort.h"

namespace macaw::cli {
namespace {

// How long a run that is over waits for its trackers.
constexpr Duration kTrackersAtTheEnd = std::chrono::seconds(10);

absl::StatusOr<std::string> ProgramBeside(const std::string& folder, const std::string& name) {
  std::string path = absl::StrCat(folder, "/", name);
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(path, " is not there; it belongs beside macaw"));
  }
  return path;
}

// A worker process of the run.
struct Node {
  std::string name, token;
  std::string folder;             // folder for its files: the run's, or the owner's own
  std::vector<std::string> data;  // arguments that select its clients; none: all
  uint32_t slots = 1, first_slot = 0;
  std::vector<std::string> owns;  // names of clients
  bool owner() const { return !owns.empty(); }
};

// The ordinary workers share what the owners leave; the file tells the server who they all are.
absl::StatusOr<std::vector<Node>> NodesOf(const Config& config, const std::string& run,
                                          const std::string& callers_file) {
  const uint32_t processes = config.node.workers.processes, owners = config.node.workers.owners;
  const uint32_t slots = SlotsHere(config);
  std::vector<Node> nodes;
  for (uint32_t i = 0; i < processes; ++i) {
    Node node{
        .name = absl::StrCat("worker-", i), .folder = run, .slots = slots, .first_slot = i * slots};
    if (owners > 0) node.data = {"--clients", absl::StrCat(owners, ":", config.run.clients)};
    nodes.push_back(std::move(node));
  }
  for (uint32_t i = 0; i < owners; ++i) {
    const std::string folder = OwnerFolder(run, i);
    nodes.push_back({.name = OwnerName(i),
                     .folder = folder,
                     .data = {"--own", folder + "/data.safetensors"},
                     .first_slot = processes * slots + i,
                     .owns = {absl::StrCat(i)}});
  }
  Callers callers;
  for (Node& node : nodes) node.token = callers.Add(node.name, node.owns);
  MACAW_RETURN_IF_ERROR(callers.Write(callers_file));
  return nodes;
}

// The Redis of this run, if the configuration asks for one.
absl::StatusOr<std::optional<PrivateRedis>> StartRedis(const Config& config,
                                                       const RunOptions& options) {
  if (!options.stateful || config.node.state.store != "redis" || config.node.state.url != "spawn")
    return std::nullopt;
  MACAW_ASSIGN_OR_RETURN(PrivateRedis redis, PrivateRedis::Start(options.folder));
  return std::optional<PrivateRedis>(std::move(redis));
}

// Makes the command lines of the programs of the run.
struct Commands {
  const RunOptions& options;
  std::string server, worker;  // paths of the programs
  std::string listen, callers;
  const std::vector<Node>& nodes;
  // Set if the states are on this host: they are made durable beside the rounds, before a
  // checkpoint names them.
  std::string state_folder;
  std::string state_url;  // of the Redis of this run; empty: there is none
  bool server_syncs_state = false;

  std::string LogOf(const std::string& name) const {
    return absl::StrCat(options.folder, "/logs/", name, ".log");
  }

  ChildSpec Server(const ServerStart& start) const {
    ChildSpec spec{.name = "macaw-server",
                   .log = LogOf("server"),
                   .inherit = {start.ready_fd, start.report_fd, options.lock}};
    if (options.steps >= 0) spec.inherit.push_back(options.steps);
    spec.argv = {server,
                 "--config",
                 options.config_file,
                 "--run-dir",
                 options.folder,
                 "--listen",
                 start.address.empty() ? listen : start.address,
                 "--ready-fd",
                 absl::StrCat(start.ready_fd),
                 "--report-fd",
                 absl::StrCat(start.report_fd),
                 "--lock-fd",
                 absl::StrCat(options.lock),
                 "--callers",
                 callers};
    if (options.steps >= 0)
      spec.argv.insert(spec.argv.end(), {"--step-fd", absl::StrCat(options.steps)});
    if (server_syncs_state) spec.argv.insert(spec.argv.end(), {"--sync-state", state_folder});
    if (options.resume || start.again) spec.argv.push_back("--resume");
    if (!options.replay.empty()) spec.argv.insert(spec.argv.end(), {"--replay", options.replay});
    for (const uint64_t client : options.without)
      spec.argv.insert(spec.argv.end(), {"--without", absl::StrCat(client)});
    for (const uint32_t round : options.evaluate_after)
      spec.argv.insert(spec.argv.end(), {"--evaluate-after", absl::StrCat(round)});
    // A server that has listened has put them into its log, where the next one finds them.
    for (const uint64_t client : options.state_reset) {
      if (start.address.empty())
        spec.argv.insert(spec.argv.end(), {"--state-reset", absl::StrCat(client)});
    }
    return spec;
  }

  ChildSpec Worker(uint32_t index, const std::string& address) const {
    const Node& node = nodes[index];
    ChildSpec spec{
        .name = node.name, .log = LogOf(node.name), .environment = {{kTokenVariable, node.token}}};
    spec.argv = {worker,
                 "--config",
                 options.node_file,
                 "--server",
                 address,
                 "--name",
                 node.name,
                 "--slots",
                 absl::StrCat(node.slots),
                 "--first-slot",
                 absl::StrCat(node.first_slot),
                 "--scratch",
                 node.folder + "/scratch",
                 "--state",
                 node.owner() ? node.folder + "/state" : state_folder};
    spec.argv.insert(spec.argv.end(), node.data.begin(), node.data.end());
    // An owner makes its states durable itself.
    if (server_syncs_state && !node.owner()) spec.argv.push_back("--server-syncs-state");
    if (!state_url.empty()) spec.argv.insert(spec.argv.end(), {"--state-url", state_url});
    if (options.trace)
      spec.argv.insert(spec.argv.end(),
                       {"--trace", absl::StrCat(options.folder, "/trace/", node.name, ".jsonl")});
    return spec;
  }
};

absl::StatusOr<Commands> CommandsOf(const Config& config, const RunOptions& options,
                                    const SocketFolder& sockets, const std::vector<Node>& nodes,
                                    const std::optional<PrivateRedis>& redis) {
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  MACAW_ASSIGN_OR_RETURN(const std::string server, ProgramBeside(programs, "macaw-server"));
  MACAW_ASSIGN_OR_RETURN(const std::string worker, ProgramBeside(programs, "macaw-worker"));
  const std::string& listen = config.node.server.listen;
  const state::StateConfig& state = config.node.state;
  return Commands{.options = options,
                  .server = server,
                  .worker = worker,
                  .listen = listen.empty() ? absl::StrCat("unix:", sockets.socket()) : listen,
                  .callers = sockets.callers(),
                  .nodes = nodes,
                  .state_folder = redis.has_value() || state.path.empty()
                                      ? options.folder + "/state"
                                      : state.path,
                  .state_url = redis.has_value() ? redis->url() : "",
                  .server_syncs_state = options.stateful && state.sync &&
                                        (redis.has_value() || state.store == "disk")};
}

}  // namespace

absl::StatusOr<SupervisedEnd> RunInChildren(const Config& config, const RunOptions& options) {
  MACAW_ASSIGN_OR_RETURN(const SocketFolder private_folder, SocketFolder::Make());
  MACAW_ASSIGN_OR_RETURN(const std::vector<Node> nodes,
                         NodesOf(config, options.folder, private_folder.callers()));

  if (options.stateful) HandRedisPasswordOn(config);
  // Outlives the workers.
  MACAW_ASSIGN_OR_RETURN(std::optional<PrivateRedis> redis, StartRedis(config, options));

  Progress progress(
      {.terminal = ::isatty(STDERR_FILENO) != 0,
       .quiet = options.quiet || options.silent,
       .width = TerminalWidth,
       .rounds = config.run.rounds,
       .cohort = scheduler::SizeOfRounds(config.run.cohort, TrainClients(config.run)).most},
      SteadyClock(), &WriteToStandardError);

  if (options.trace) MACAW_RETURN_IF_ERROR(MakeDirectories(options.folder + "/trace"));
  MACAW_ASSIGN_OR_RETURN(const Commands commands,
                         CommandsOf(config, options, private_folder, nodes, redis));

  Tracking tracking;
  SupervisorOptions supervisor;
  supervisor.workers = static_cast<uint32_t>(nodes.size());
  supervisor.limit = options.limit;
  if (options.steps >= 0) supervisor.report_pause = {};  // the caller waits for each row
  // A run that repeats another one cannot be resumed.
  // The server of a stepwise run is not restarted: a new one would not know what the caller has
  // said. The run ends, and can be resumed.
  supervisor.restart_server =
      config.node.server.keeps_commits() && options.replay.empty() && options.steps < 0;
  supervisor.server = [&](const ServerStart& start) { return commands.Server(start); };
  supervisor.worker = [&](uint32_t index, const std::string& address) {
    return commands.Worker(index, address);
  };
  supervisor.on_row = [&](const std::string& row) {
    if (!progress.OnRow(row)) {
      if (const std::string warning = WarningIn(row); !warning.empty())
        supervisor.say(absl::StrCat("warning: ", warning));
      return false;
    }
    options.on_row(row);
    if (redis.has_value()) redis->OnProgress();
    for (const std::string& line : tracking.TakeLines()) supervisor.say(line);
    return true;
  };
  supervisor.say = [&](const std::string& message) {
    if (!options.silent) progress.Say(message);
    options.on_message(message);
  };
  // A run that repeats another one has nothing new to tell.
  if (options.replay.empty()) {
    absl::StatusOr<Tracking> started =
        Tracking::Start(options.folder, config.node.track, kTrackersAtTheEnd);
    if (started.ok()) {
      tracking = *std::move(started);
    } else {
      supervisor.say(absl::StrCat("run.track: ", started.status().message(), "; `macaw track ",
                                  ForShell(options.folder), "` delivers the rows later"));
    }
  }
  if (redis.has_value()) {
    supervisor.services.push_back({.fd = [&redis] { return redis->fd(); },
                                   .attend = [&] { return redis->Attend(supervisor.say); },
                                   .process = [&redis] { return redis->process(); }});
  }

  absl::StatusOr<SupervisedEnd> end = Supervise(supervisor);
  progress.Finish();
  tracking.Finish();
  for (const std::string& line : tracking.TakeLines()) supervisor.say(line);
  return end;
}

}  // namespace macaw::cli
