// macaw-admin: what `macaw admin` and `macaw doctor --server` run. A program of its own, because
// `macaw` starts in half the time without gRPC.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/admin/results_folder.h"
#include "cli/admin/view.h"
#include "cli/check_server.h"
#include "cli/command_line.h"
#include "cli/invite/lifetimes.h"
#include "cli/invite/named_clients.h"
#include "cli/process/exit.h"
#include "cli/process/kept_places.h"
#include "cli/process/signals.h"
#include "core/files.h"
#include "core/shell.h"
#include "core/status.h"
#include "core/utf8.h"
#include "identity/node_files.h"
#include "proto/wire/admin.h"

namespace macaw::cli {
namespace {

using admin::Action;

struct AdminArguments {
  std::string run_dir, standing, server, identity, node, reason, plan, run, to, open_for;
  wire::NodeInvite invite{.name = "", .role = "device", .clients = {}};
  std::vector<std::string> whole;  // of --client
  uint32_t round = 0;
  uint64_t from = 0;
  bool json = false, events = false;
};

// ---- finding the server

// The address of the run's server, or why there is none.
absl::StatusOr<std::string> AddressOf(const AdminArguments& arguments) {
  if (!arguments.server.empty()) return arguments.server;
  if (!arguments.standing.empty()) {
    const std::string file = arguments.standing + "/queue-address";
    const absl::StatusOr<std::string> at = ReadFile(file);
    if (at.ok()) return std::string(absl::StripAsciiWhitespace(*at));
    if (!absl::IsNotFound(at.status())) return at.status();
    return absl::NotFoundError(absl::StrCat(arguments.standing,
                                            " is not the folder of a standing "
                                            "server (macaw-server --standing)"));
  }
  const std::string& run = arguments.run_dir;
  if (!FileExists(run + "/config.toml"))
    return MissingFile(run + "/config.toml", absl::StrCat(run, " is not the folder of a run"));
  const absl::StatusOr<std::string> written = ReadFile(OperatorsAddressFile(run));
  if (written.ok()) return std::string(absl::StripAsciiWhitespace(*written));
  return absl::StrCat("unix:", run, "/admin.sock");
}

using EndTime = std::optional<std::filesystem::file_time_type>;

// When the run ended, as its folder says; nullopt: it has not, or it is elsewhere.
EndTime EndOf(const AdminArguments& arguments) {
  if (arguments.run_dir.empty()) return std::nullopt;
  std::error_code none;
  const auto time = std::filesystem::last_write_time(arguments.run_dir + "/summary.json", none);
  return none ? std::nullopt : EndTime(time);
}

// What to tell of a run without a server.
std::string Unserved(const std::string& run_dir, bool over) {
  return absl::StrCat(
      over ? absl::StrCat("the run in ", run_dir, " has ended (`macaw log ", ForShell(run_dir),
                          "` tells how)")
           : absl::StrCat("no server works on ", run_dir),
      "; a run that was interrupted goes on with macaw-server --resume and its other options, a "
      "simulation with macaw simulate --resume ",
      ForShell(run_dir));
}

// An error of a call, in words for people.
absl::Status Explain(const AdminArguments& arguments, const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  if (arguments.run_dir.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "no server answers operators at ",
        arguments.server.empty() ? arguments.standing : arguments.server, ": ", status.message()));
  }
  const absl::StatusOr<std::string> address = AddressOf(arguments);
  const bool listens = !absl::StrContains(status.message(), "onnection refused");
  if (address.ok() && !absl::StartsWith(*address, "unix:") && arguments.identity.empty() &&
      listens) {
    return absl::UnavailableError(absl::StrCat(
        "the operators' address of this run is ", *address, " (server.admin): ", status.message(),
        "; with an authority it asks for --identity FOLDER"));
  }
  return absl::UnavailableError(Unserved(arguments.run_dir, EndOf(arguments).has_value()));
}

// Who this is, for the log. A name and no proof: whoever can open the socket is this user.
std::string Operator() {
  const char* user = std::getenv("USER");
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return absl::StrCat(user != nullptr ? user : absl::StrCat("uid ", ::getuid()), "@", host);
}

// ---- commands

absl::Status Show(const AdminArguments& arguments, wire::AdminClient& server,
                  absl::StatusOr<std::string> (*view)(const std::string&)) {
  MACAW_ASSIGN_OR_RETURN(const std::string json, server.Status());
  if (arguments.json) {
    std::cout << json << std::endl;
    return absl::OkStatus();
  }
  MACAW_ASSIGN_OR_RETURN(const std::string text, view(json));
  std::cout << text << std::flush;
  return absl::OkStatus();
}

absl::Status WatchEvents(const AdminArguments& arguments, wire::AdminClient& server) {
  uint64_t next = arguments.from;
  return server.Watch(arguments.from, [&](uint64_t number, const std::string& line) {
    if (next != 0 && number > next)
      std::cerr << number - next << " earlier events are in events.jsonl" << std::endl;
    next = number + 1;
    std::cout << line << std::endl;
    return true;
  });
}

// Whoever watched is told why nobody answers any more. It is an error unless the run has ended
// meanwhile; `end`: what EndOf said before, of an earlier session.
absl::Status EndOfWatch(const AdminArguments& arguments, const absl::Status& status, EndTime end) {
  const EndTime now = EndOf(arguments);
  if (now.has_value() && now != end) {
    (arguments.json ? std::cerr : std::cout)
        << Unserved(arguments.run_dir, /*over=*/true) << std::endl;
    return absl::OkStatus();
  }
  if (arguments.run_dir.empty() || !absl::IsUnavailable(status)) return status;
  return absl::AbortedError(Unserved(arguments.run_dir, /*over=*/false));
}

absl::Status Watch(const AdminArguments& arguments, wire::AdminClient& server) {
  if (arguments.events) return WatchEvents(arguments, server);
  MACAW_ASSIGN_OR_RETURN(const SignalFd signals, SignalFd::Open());
  const bool screen = ::isatty(STDOUT_FILENO) == 1;
  const EndTime end = EndOf(arguments);
  std::string before;
  while (true) {
    absl::StatusOr<std::string> json = server.Status();
    if (!json.ok() && !before.empty()) {  // it was there
      if (screen) std::cout << std::endl;
      return EndOfWatch(arguments, json.status(), end);
    }
    MACAW_RETURN_IF_ERROR(json.status());
    MACAW_ASSIGN_OR_RETURN(const WatchLine line, WatchView(*json));
    const bool news = line.key != before;
    if (arguments.json && news) std::cout << *json << std::endl;
    if (!arguments.json && news) std::cout << (screen && !before.empty() ? "\n" : "") << line.text;
    if (!arguments.json && !news && screen) std::cout << "\r\x1b[K" << line.text;
    if (!arguments.json && news && !screen) std::cout << "\n";
    std::cout << std::flush;
    before = line.key;
    pollfd ends{.fd = signals.fd(), .events = POLLIN, .revents = 0};
    if (line.ended || ::poll(&ends, 1, /*timeout, in ms=*/1000) > 0) {
      if (screen) std::cout << std::endl;
      return absl::OkStatus();
    }
  }
}

// ---- a standing server

absl::Status Submit(const AdminArguments& arguments, wire::AdminClient& server) {
  MACAW_ASSIGN_OR_RETURN(std::string plan, ReadFile(arguments.plan));
  MACAW_RETURN_IF_ERROR(CheckUtf8(plan, arguments.plan));
  const std::string file = std::filesystem::path(arguments.plan).stem().string();
  MACAW_ASSIGN_OR_RETURN(const std::string said,
                         server.Submit({.name = arguments.run.empty() ? file : arguments.run,
                                        .by = Operator(),
                                        .plan = std::move(plan)}));
  std::cout << SaidView(said, arguments.json) << std::flush;
  return absl::OkStatus();
}

absl::Status Withdraw(const AdminArguments& arguments, wire::AdminClient& server) {
  MACAW_ASSIGN_OR_RETURN(const std::string said,
                         server.Withdraw(arguments.run, Operator(), arguments.reason));
  std::cout << SaidView(said, arguments.json) << std::flush;
  return absl::OkStatus();
}

absl::Status ListRuns(const AdminArguments& arguments, wire::AdminClient& server) {
  MACAW_ASSIGN_OR_RETURN(const std::string json, server.Runs());
  if (arguments.json) {
    std::cout << json << std::endl;
    return absl::OkStatus();
  }
  MACAW_ASSIGN_OR_RETURN(const std::string table, RunsView(json));
  std::cout << table << std::flush;
  return absl::OkStatus();
}

absl::Status FetchResults(const AdminArguments& arguments, wire::AdminClient& server) {
  const std::string to = arguments.to.empty() ? arguments.run : arguments.to;
  MACAW_ASSIGN_OR_RETURN(ResultsFolder folder, ResultsFolder::Make(to));
  MACAW_RETURN_IF_ERROR(server.Results(
      arguments.run, [&](const admin::ResultPiece& piece) { return folder.Take(piece); }));
  MACAW_ASSIGN_OR_RETURN(const std::vector<std::string> names, folder.Finish());
  std::cout << FilesView(to, names, arguments.json) << std::flush;
  return absl::OkStatus();
}

// ---- the nodes of the fleet

absl::Status Invite(const AdminArguments& arguments, wire::AdminClient& server) {
  wire::NodeInvite invite = arguments.invite;
  MACAW_ASSIGN_OR_RETURN(invite.clients,
                         ClientsNamed(invite.role, invite.clients, arguments.whole));
  MACAW_ASSIGN_OR_RETURN(
      const absl::Duration open_for,
      ParseLifetime("--open-for", arguments.open_for, /*otherwise=*/absl::ZeroDuration()));
  invite.open_for_seconds = static_cast<uint64_t>(absl::ToInt64Seconds(open_for));
  MACAW_ASSIGN_OR_RETURN(const wire::InviteCode code, server.Invite(invite));
  // The code alone is on standard output, for scripts.
  std::cout << CodeView(code.code, code.until, arguments.json) << std::flush;
  std::cerr << "good once, until " << code.until << ". On the " << arguments.invite.role
            << ":\n  macaw-worker enrol --server HOST:PORT --identity FOLDER CODE" << std::endl;
  return absl::OkStatus();
}

absl::Status Revoke(const AdminArguments& arguments, wire::AdminClient& server) {
  MACAW_ASSIGN_OR_RETURN(const std::string said, server.Revoke(arguments.node, arguments.reason));
  std::cout << SaidView(said, arguments.json) << std::flush;
  return absl::OkStatus();
}

// ---- changes of a run

absl::Status Change(const AdminArguments& arguments, wire::AdminClient& server, Action action) {
  admin::Change change{.action = action,
                       .by = Operator(),
                       .reason = arguments.reason,
                       .node = arguments.node,
                       .round = arguments.round};
  if (action == Action::kAbortRound && change.round == 0) {
    MACAW_ASSIGN_OR_RETURN(const std::string json, server.Status());
    MACAW_ASSIGN_OR_RETURN(change.round, RoundOf(json));
  }
  if (action == Action::kSkipEvaluation && change.round == 0) {
    MACAW_ASSIGN_OR_RETURN(const std::string json, server.Status());
    MACAW_ASSIGN_OR_RETURN(change.round, EvaluatedRoundOf(json));
  }
  MACAW_ASSIGN_OR_RETURN(const admin::Changed changed, server.Apply(std::move(change)));
  std::cout << SaidView(changed.text, arguments.json) << std::flush;
  return absl::OkStatus();
}

using Command = std::function<absl::Status(const AdminArguments&, wire::AdminClient&)>;

absl::Status RunCommand(const AdminArguments& arguments, const Command& command) {
  MACAW_ASSIGN_OR_RETURN(const std::string address, AddressOf(arguments));
  std::optional<identity::IdentityFiles> identity;
  if (!arguments.identity.empty()) identity = identity::IdentityFiles::In(arguments.identity);
  MACAW_ASSIGN_OR_RETURN(const auto server, wire::AdminClient::Dial(address, identity));
  return Explain(arguments, command(arguments, *server));
}

// ---- the command line

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& help,
                     std::shared_ptr<AdminArguments> arguments, std::function<int()>& run,
                     Command command) {
  CLI::App* added = app.add_subcommand(name, help);
  added->fallthrough();
  added->final_callback([arguments, command = std::move(command), &run] {
    run = [arguments, command] {
      const std::string& run_dir = arguments->run_dir;
      const int named = (run_dir.empty() ? 0 : 1) + (arguments->server.empty() ? 0 : 1) +
                        (arguments->standing.empty() ? 0 : 1);
      if (named != 1) {
        return Report(absl::InvalidArgumentError(
            "which server? --run-dir RUN, --standing DIR of a standing server, or --server ADDR of "
            "its operators' address"));
      }
      return Report(RunCommand(*arguments, command));
    };
  });
  return added;
}

void AddAdmin(CLI::App& app, std::function<int()>& run) {
  CLI::App* admin = app.add_subcommand("admin", "See and steer a run while it goes on");
  admin->require_subcommand(1);
  auto arguments = std::make_shared<AdminArguments>();
  admin->add_option("--run-dir", arguments->run_dir, "The run's folder, on this machine");
  admin->add_option("--standing", arguments->standing,
                    "The folder of a standing server, on this machine");
  admin->add_option("--server", arguments->server,
                    "The operators' address of a server (server.admin, --admin)");
  admin->add_option("--identity", arguments->identity,
                    "The operator's folder (macaw-worker enrol), where the server asks for one");
  admin->add_flag("--json", arguments->json, "JSON instead of tables and sentences");
  admin->add_option("--reason", arguments->reason, "Reason of a change, for the run's log");
  const auto add = [&](const char* name, const char* help, Command command) {
    return AddCommand(*admin, name, help, arguments, run, std::move(command));
  };
  add("status", "State, open round, what it waits for",
      [](const auto& a, auto& server) { return Show(a, server, StatusView); });
  add("nodes", "The nodes that are there, and what each does",
      [](const auto& a, auto& server) { return Show(a, server, NodesView); });
  CLI::App* watch = add("watch", "Print what the run waits for whenever it changes", Watch);
  CLI::Option* const events =
      watch->add_flag("--events", arguments->events, "Print the lines of events.jsonl instead");
  watch->add_option("--from", arguments->from, "With --events: from this line on (first: 1)")
      ->needs(events);
  const auto change = [&](const char* name, const char* help, Action action) {
    return add(name, help,
               [action](const auto& a, auto& server) { return Change(a, server, action); });
  };
  CLI::App* submit = add("submit", "Hand a run to a standing server", Submit);
  submit->add_option("PLAN", arguments->plan, "What `macaw plan CONFIG --out PLAN` wrote")
      ->required();
  submit->add_option("--name", arguments->run, "Name of the run (default: the file's name)");
  add("withdraw", "Take a run out of a standing server's queue, or end it", Withdraw)
      ->add_option("RUN", arguments->run, "Its name")
      ->required();
  add("runs", "The runs of a standing server", ListRuns);
  CLI::App* results =
      add("results", "Fetch the files of a standing server's run: summary, metrics, models, log",
          FetchResults);
  results->add_option("RUN", arguments->run, "Its name")->required();
  results->add_option("--to", arguments->to, "A new folder (default: the run's name)");
  CLI::App* invite = add("invite", "Print a code with which one node may enrol", Invite);
  invite->add_option("NODE", arguments->invite.name, "Its name, which never changes")->required();
  invite
      ->add_option("--role", arguments->invite.role,
                   "device: trains its own clients alone; worker: also shared ones")
      ->capture_default_str();
  invite
      ->add_option("--clients", arguments->invite.clients,
                   "Names of the clients that it owns, with commas between them, or * (default: "
                   "one, named like the node)")
      ->delimiter(',');
  invite
      ->add_option("--client", arguments->whole,
                   "One of its clients by its whole name, commas included; once for each, also "
                   "beside --clients")
      ->allow_extra_args(false);
  invite->add_option(
      "--open-for", arguments->open_for,
      "How long the code is good, in seconds or with a unit: 30min, 12h, 7d (default: 1d)");
  add("revoke", "Shut a node out, from its next call on; --reason is told to it", Revoke)
      ->add_option("NODE", arguments->node, "Its name")
      ->required();
  change("pause", "Open no further round after the open one", Action::kPause);
  change("resume", "Go on after a pause", Action::kResume);
  change("drain", "End the run after the open round; it can be resumed", Action::kDrain);
  change("abort-round", "Begin the open round again; the result does not change",
         Action::kAbortRound)
      ->add_option("--round", arguments->round, "Only if this round is the open one");
  change("quarantine", "Send a node away until it is admitted", Action::kQuarantine)
      ->add_option("NODE", arguments->node, "Its name")
      ->required();
  change("admit", "Let a node come back", Action::kAdmit)
      ->add_option("NODE", arguments->node, "Its name")
      ->required();
  change("give-up", "Wait no longer for a node that is gone; it may come back", Action::kGiveUp)
      ->add_option("NODE", arguments->node, "Its name")
      ->required();
  change("skip-evaluation", "End the open evaluation without what is missing",
         Action::kSkipEvaluation)
      ->add_option("--round", arguments->round, "Only if the model after this round is evaluated");
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  ExplainEndings("macaw");
  CLI::App app("What `macaw admin` and `macaw doctor --server` run", "macaw");
  app.require_subcommand(1);
  std::function<int()> run;
  AddAdmin(app, run);
  auto server = std::make_shared<std::string>();
  CLI::App* doctor = app.add_subcommand("doctor", "Whether a server can be reached");
  doctor->add_option("--server", *server, "As a worker dials it")->required();
  auto identity = std::make_shared<std::string>();
  doctor->add_option("--identity", *identity, "The node's folder, where the server asks for one");
  doctor->final_callback(
      [=, &run] { run = [=] { return Report(CheckServer(*server, *identity)); }; });
  if (const auto code = ParseCommandLine(app, "macaw", argc, argv)) return *code;
  return run();
}

}  // namespace
}  // namespace macaw::cli

int main(int argc, char** argv) {
  return macaw::cli::CloseOutput("macaw", macaw::cli::Main(argc, argv));
}
