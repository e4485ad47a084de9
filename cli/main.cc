// The `macaw` command and its verbs. Each verb is in cli/commands/ or in the folder of its name.
// Links no LibTorch. `admin` and `doctor --server` are the program macaw-admin.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/commands/log.h"
#include "cli/commands/pki.h"
#include "cli/commands/plugin.h"
#include "cli/commands/project.h"
#include "cli/commands/replay.h"
#include "cli/commands/state.h"
#include "cli/commands/sweep.h"
#include "cli/commands/timeline.h"
#include "cli/config/track.h"
#include "cli/process/exit.h"
#include "cli/process/limits.h"
#include "cli/process/programs.h"
#include "cli/simulate/simulate.h"
#include "cli/sweep/repeat.h"

namespace macaw::cli {
namespace {

// Options that set a key of the configuration.
void AddShortForms(CLI::App& command, SimulateOptions& options) {
  command.add_option("--clients", options.clients,
                     "Population: partition.clients or data.synthetic.clients");
  command.add_option("--rounds", options.rounds, "run.rounds");
  command.add_option("--seed", options.seed, "run.seed");
  command.add_option("--processes", options.processes, "workers.processes");
  command.add_option("--slots", options.slots, "workers.slots: clients at a time in each process");
  command.add_option("--owners", options.owners,
                     "workers.owners: this many of the first clients train in a process of their "
                     "own, which has no rows but theirs");
}

void AddSimulate(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("simulate", "Train a model over simulated clients");
  auto options = std::make_shared<SimulateOptions>();
  auto help_config = std::make_shared<bool>(false);
  CLI::Option* config =
      command->add_option("CONFIG", options->config, "The run's configuration (TOML)");
  command->add_option("--set", options->set, "Change a key: section.key=value (as often as needed)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--out", options->out,
                      "The run's folder (default: run.out, or runs/<name>, -2, -3, ...)");
  CLI::Option* resume =
      command->add_option("--resume", options->resume, "Go on with the run in this folder")
          ->excludes(config);
  AddShortForms(*command, *options);
  CLI::Option* repeat =
      command
          ->add_option(
              "--repeat", options->repeat,
              "Run with N seeds side by side and report mean and standard deviation; the same "
              "command goes on with what was interrupted")
          ->check(CLI::Range(1, 10000))
          ->excludes(resume);
  command->add_option("--jobs,-j", options->jobs, "With --repeat: runs at a time")
      ->check(CLI::PositiveNumber)
      ->needs(repeat);
  command
      ->add_option("--state-reset", options->state_reset,
                   "With --resume: this client gives its state up and starts again")
      ->type_name("CLIENT")
      ->allow_extra_args(false)
      ->needs(resume);
  command->add_flag("--force", options->force, "Replace a run that is in the folder already");
  command->add_flag("--tcp", options->tcp,
                    "TCP loopback between server and workers, not a Unix socket");
  command->add_flag("--trace", options->trace,
                    "Also write which rows each batch had: trace/ in the run's folder");
  command->add_flag("--check", options->check,
                    "Check the configuration, the data and the back ends, and end without a run");
  command
      ->add_option("--model-step", options->model_step,
                   "Write what the first model makes of two small batches (losses, gradients, one "
                   "step each) to this safetensors file, and end without a run")
      ->type_name("FILE")
      ->excludes(resume)
      ->excludes(repeat);
  CLI::Option* quiet =
      command->add_flag("-q,--quiet", options->quiet, "No progress; print the run's folder only");
  CLI::Option* json =
      command
          ->add_flag("--json", options->json,
                     "For programs: print what happens as one JSON object a line, and nothing else")
          ->excludes(quiet);
  command
      ->add_flag("--step", options->step,
                 "For programs: wait after each round for a line on standard input, \"go ROUND\" "
                 "(how far to go on) or \"stop WHY\"; its end interrupts the run")
      ->needs(json)
      ->excludes(repeat);
  command->add_flag("--help-config", *help_config, "List every key of a configuration, and end");
  command->footer(
      "Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 5 a back end is missing, "
      "130 interrupted (Ctrl-C; resumable).");
  command->final_callback([=, &run] {
    if (*help_config) {
      run = [] { return PrintConfigHelp({}); };
      return;
    }
    if (options->config.empty() && options->resume.empty() && options->set.empty()) {
      throw CLI::RequiredError("CONFIG.toml, or --set KEY=VALUE, or --resume DIR,");
    }
    run = [options] {
      const absl::Status files = EnsureOpenFiles();
      if (!files.ok()) return Report(files);
      return options->repeat.has_value() ? Repeat(*options) : Simulate(*options);
    };
  });
}

void AddData(CLI::App& app, std::function<int()>& run) {
  CLI::App* data = app.add_subcommand("data", "Look at, convert and export data");
  data->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help, bool writes,
                       int (*action)(const DataCommand&)) {
    CLI::App* command = data->add_subcommand(name, help);
    auto options = std::make_shared<DataCommand>();
    command
        ->add_option("SOURCE", options->source,
                     "A configuration with [data] (and [partition]), or a data file or folder")
        ->required();
    command->add_option("--set", options->set, "Change a key: section.key=value")
        ->allow_extra_args(false);
    if (writes) {
      command->add_option("--out,-o", options->out, "The file (shards: the folder) to write")
          ->required();
      command->add_flag("--force", options->force, "Replace what is there");
    }
    command->final_callback([=, &run] { run = [options, action] { return action(*options); }; });
  };
  add("info", "Clients, examples, shapes, classes", false, DataInfo);
  add("prepare", "Write one file that is mapped, not read (safetensors)", true, DataPrepare);
  add("shards", "Write a file for each client, for a rehearsal of a fleet", true, DataShards);
  add("export-partition", "Write which rows each client has (JSON)", true, DataExportPartition);
}

void AddLists(CLI::App& app, std::function<int()>& run) {
  auto where = std::make_shared<ListCommand>();
  const auto looks_beside = [where](CLI::App* command) {
    command->add_option("--plugin", where->plugins, "Also what this shared library adds")
        ->type_name("FILE")
        ->allow_extra_args(false);
    command->add_option("--config", where->config, "Also the plug-ins of this configuration");
  };
  CLI::App* models = app.add_subcommand("models", "List the models by name, and the layers");
  looks_beside(models);
  models->final_callback([where, &run] { run = [where] { return ListModels(*where); }; });
  app.add_subcommand("partitions", "List the ways to divide data")->final_callback([&run] {
    run = ListPartitions;
  });
  CLI::App* keys = app.add_subcommand("keys", "List every key of a configuration");
  looks_beside(keys);
  auto json = std::make_shared<bool>(false);
  keys->add_flag("--json", *json,
                 "Also algorithms, partitions, models and layers, as one JSON object");
  keys->final_callback([=, &run] {
    run = [=] { return *json ? DescribeAll(*where, MACAW_VERSION) : PrintConfigHelp(*where); };
  });
  app.add_subcommand("doctor",
                     "What this machine offers a run; with --server ADDR, whether that server can "
                     "be reached")
      ->final_callback([&run] { run = Doctor; });
  CLI::App* algorithms =
      app.add_subcommand("algorithms", "List the algorithms, or what one computes and takes");
  auto name = std::make_shared<std::string>(), pages = std::make_shared<std::string>();
  CLI::Option* one =
      algorithms->add_option("NAME", *name, "Show this one's formula, parameters and channels");
  algorithms->add_option("--pages", *pages, "Write a page for each into this folder, as Markdown")
      ->excludes(one);
  looks_beside(algorithms);
  algorithms->final_callback([=, &run] {
    run = [=] {
      return pages->empty() ? ListAlgorithms(*where, *name) : WriteRulePages(*where, *pages);
    };
  });
}

void AddPrivacy(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "privacy", "The noise that is enough for an epsilon, or the epsilon of a noise");
  auto options = std::make_shared<PrivacyCommand>();
  const auto count = [&](const std::string& name, uint64_t& value, const std::string& help) {
    command->add_option(name, value, help)->required()->check([](const std::string& text) {
      uint64_t number = 0;
      const bool good = absl::SimpleAtoi(text, &number) && number > 0;
      return good ? std::string() : "must be a whole number of at least 1, found " + text;
    });
  };
  count("--clients", options->clients, "Clients of the run, in all");
  count("--cohort", options->cohort, "Clients of a round: cohort.size, or privacy.noise_cohort");
  count("--rounds", options->rounds, "run.rounds");
  command
      ->add_option("--population", options->population,
                   "privacy.population: the clients among which --cohort is drawn, where the run "
                   "simulates fewer (default: --clients)")
      ->check(CLI::PositiveNumber);
  command->add_option("--delta", options->delta,
                      "privacy.delta (default: a tenth of 1 / population)");
  CLI::Option* epsilon =
      command->add_option("--epsilon", options->epsilon, "Print the noise for this epsilon");
  CLI::Option* noise =
      command->add_option("--noise", options->noise, "Print the epsilon of this privacy.noise")
          ->excludes(epsilon);
  command->final_callback([=, &run] {
    if (epsilon->count() + noise->count() == 0) throw CLI::RequiredError("--epsilon or --noise");
    run = [options] { return ShowPrivacy(*options); };
  });
}

void AddNew(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("new", "Write a project of your own, complete and with tests");
  auto name = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  auto python = std::make_shared<bool>(false), cpp = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "Small letters, digits and _")->required();
  command->add_option("--out,-o", *out, "The folder to make (default: NAME)");
  CLI::Option* in_python = command->add_flag(
      "--python", *python, "Own data, model and rule in Python, with tests (the default)");
  command->add_flag("--cpp", *cpp, "A plug-in: an algorithm, a model, data and tests in C++")
      ->excludes(in_python);
  command->final_callback([=, &run] {
    run = [=] { return NewProject(*name, *out, *cpp ? Language::kCpp : Language::kPython); };
  });
}

void AddPlugin(CLI::App& app, std::function<int()>& run) {
  CLI::App* plugin = app.add_subcommand("plugin", "Look at a plug-in (macaw new --cpp writes one)");
  plugin->require_subcommand(1);
  auto path = std::make_shared<std::string>();
  CLI::App* check = plugin->add_subcommand("check", "Load a plug-in and list what it adds");
  check->add_option("FILE", *path, "The shared library")->required();
  check->final_callback([=, &run] { run = [path] { return PluginCheck(*path); }; });
}

void AddState(CLI::App& app, std::function<int()>& run) {
  CLI::App* state = app.add_subcommand("state", "What a run's clients keep between rounds");
  state->require_subcommand(1);
  auto folder = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  auto client = std::make_shared<uint64_t>(0);
  const auto add = [&](const std::string& name, const std::string& help) {
    CLI::App* command = state->add_subcommand(name, help);
    command->add_option("RUN", *folder, "The run's folder")->required();
    return command;
  };
  add("ls", "Counts, bytes, versions, orphans")->final_callback([=, &run] {
    run = [folder] { return StateList(*folder); };
  });
  add("verify", "Read every version that a checkpoint names")->final_callback([=, &run] {
    run = [folder] { return StateVerify(*folder); };
  });
  add("gc", "Delete what no checkpoint names")->final_callback([=, &run] {
    run = [folder] { return StateSweep(*folder); };
  });
  CLI::App* show = add("show", "One client's state: its header, and norms of its items");
  show->add_option("CLIENT", *client, "The client's number")->required();
  show->final_callback([=, &run] { run = [=] { return StateShow(*folder, *client); }; });
  CLI::App* write = add("export", "Write one client's state (safetensors)");
  write->add_option("CLIENT", *client, "The client's number")->required();
  write->add_option("--out,-o", *out, "The file to write")->required();
  write->final_callback([=, &run] { run = [=] { return StateExport(*folder, *client, *out); }; });
}

void AddTimeline(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("timeline", "Where the time of a run's rounds went");
  auto options = std::make_shared<TimelineCommand>();
  command->add_option("RUN", options->run, "The run's folder")->required();
  command->add_option("--svg", options->svg, "Also draw some rounds into this file");
  command->add_option("--rounds", options->rounds, "Rounds to draw (default: the last three)")
      ->type_name("A[:B]");
  command->footer(
      "timeline.json itself opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.");
  command->final_callback([=, &run] { run = [options] { return ShowTimeline(*options); }; });
}

void AddReport(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "report", "A page about runs: curves, clients, time, settings, in one HTML file");
  auto options = std::make_shared<ReportCommand>();
  command
      ->add_option("RUN", options->runs,
                   "Folders of runs, sweeps and repeats, or NAME-repeat.json files")
      ->required();
  command->add_option("--out,-o", options->out, "The file to write (- for standard output)")
      ->default_val("report.html");
  command->footer("The page needs no network. A run that is not over is shown as far as it is.");
  command->final_callback([=, &run] { run = [options] { return WriteReport(*options); }; });
}

void AddWatch(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("watch", "The page of `macaw report` in a browser, while the runs go on");
  auto options = std::make_shared<WatchCommand>();
  command->add_option("RUN", options->runs, "Folders of runs")->required();
  command->add_option("--port,-p", options->port, "Where to listen, on this machine alone")
      ->check(CLI::Range(1, 65535));
  command->footer(
      "What a deployed run waits for, and its nodes, are on the server's page (server.http).");
  command->final_callback([=, &run] { run = [options] { return WatchRuns(*options); }; });
}

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

void AddLog(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("log", "What happened in a run's rounds, a line each");
  auto options = std::make_shared<LogCommand>();
  command->add_option("RUN", options->run, "The run's folder")->required();
  command->add_flag("--json", options->json, "A JSON object a line, with every field");
  command->add_flag("-f,--follow", options->follow, "Wait for more until the run has ended");
  command->add_option("--round", options->round, "Show this round only")->type_name("N");
  command->footer(
      "Ctrl-C ends --follow. What the file holds: server/README.md, \"The log of rounds\".");
  command->final_callback([=, &run] { run = [options] { return ShowLog(*options); }; });
}

void AddReplay(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("replay", "Simulate a run again as its log says, and compare");
  auto options = std::make_shared<ReplayCommand>();
  command->add_option("RUN", options->run, "The run's folder")->required();
  command->add_option("--config", options->config,
                      "The simulation of a deployed run, whose server has no data; default: the "
                      "configuration in RUN");
  command->add_option("--set", options->set, "Change a key of it: section.key=value")
      ->allow_extra_args(false);
  command->add_option("--out,-o", options->out, "The folder of the repeated run")->required();
  command->add_option("--processes", options->processes, "workers.processes");
  command->add_option("--slots", options->slots,
                      "workers.slots: clients at a time in each process");
  command->add_flag("--force", options->force, "Replace a run that is in the folder already");
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "Clients that the run had to do without are not trained; everything else is computed again.\n"
      "Exit codes: 0 the same rounds and the same model, 1 they differ (the first round that does "
      "is named), 2 bad usage or no such log, 130 interrupted.");
  command->final_callback([=, &run] {
    run = [options] {
      const absl::Status files = EnsureOpenFiles();
      return files.ok() ? Replay(*options) : Report(files);
    };
  });
}

void AddCompare(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("compare", "Runs in a table: what differs, mean and deviation over seeds");
  auto options = std::make_shared<CompareCommand>();
  command
      ->add_option("RUN", options->runs,
                   "Folders of runs, sweeps and repeats, or NAME-repeat.json files")
      ->required();
  command
      ->add_option("--metric", options->metrics,
                   "A column of metrics.jsonl (its last value), best_ and such a column, "
                   "rounds_to_0.9, seconds; as often as needed")
      ->allow_extra_args(false)
      ->delimiter(',');
  command->add_option("--select", options->select,
                      "A metric of validation rows that chooses each run's round: shows its best, "
                      "and the metrics of test rows in that round");
  command->add_option("--paired", options->paired,
                      "Compare each row's values of this metric with the best row's, over common "
                      "seeds: difference, p, and p by Holm's correction");
  CLI::Option* csv = command->add_option("--csv", options->csv,
                                         "Also write the table into this file (-: only CSV)");
  command->add_flag("--json", options->json, "As one JSON object, with every run")->excludes(csv);
  command->footer(
      "Runs with equal settings are one row, whatever their seeds; the deviation is that of a "
      "sample (n - 1).");
  command->final_callback([=, &run] { run = [options] { return CompareRuns(*options); }; });
}

void AddPlan(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("plan", "Write what a server without data needs to run a configuration");
  auto options = std::make_shared<DataCommand>();
  command->add_option("CONFIG", options->source, "A configuration that can be simulated")
      ->required();
  command->add_option("--set", options->set, "Change a key: section.key=value")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--out,-o", options->out, "The file to write")->required();
  command->add_flag("--force", options->force, "Replace the file if it exists");
  command->final_callback([=, &run] { run = [options] { return WritePlan(*options); }; });
}

void AddPki(CLI::App& app, std::function<int()>& run) {
  CLI::App* pki = app.add_subcommand("pki", "The nodes of a fleet: invite, list, revoke");
  pki->require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help) {
    CLI::App* command = pki->add_subcommand(name, help);
    auto folder = std::make_shared<std::string>("pki");
    command->add_option("--dir", *folder, "The authority's folder")->capture_default_str();
    return std::pair(command, folder);
  };
  auto name = std::make_shared<std::string>(), why = std::make_shared<std::string>();
  const auto [init, init_folder] = add("init", "Make the authority of a new fleet");
  *name = "macaw";
  init->add_option("--name", *name, "Name of the fleet")->capture_default_str();
  init->final_callback(
      [=, folder = init_folder, &run] { run = [=] { return PkiInit(*folder, *name); }; });

  const auto [invite, invite_folder] = add("invite", "Print a code with which one node may enrol");
  auto options = std::make_shared<PkiInvite>();
  options->role = "device";
  invite->add_option("NAME", options->name, "The node's name, which never changes")->required();
  invite
      ->add_option("--role", options->role,
                   "device: trains its own clients alone; worker: also shared ones; operator")
      ->capture_default_str();
  invite
      ->add_option("--clients", options->clients,
                   "Names of the clients that it owns, or * (default: one, named like the node)")
      ->delimiter(',');
  invite->add_option("--lifetime", options->lifetime,
                     "Lifetime of its certificates (default: 30d)");
  invite->add_option("--open-for", options->open_for, "How long the code is good (default: 1d)");
  invite->final_callback([=, folder = invite_folder, &run] {
    options->folder = *folder;
    run = [=] { return PkiInviteNode(*options); };
  });

  const auto [list, list_folder] = add("list", "The nodes, and what they may do");
  auto json = std::make_shared<bool>(false);
  list->add_flag("--json", *json, "As JSON");
  list->final_callback(
      [=, folder = list_folder, &run] { run = [=] { return PkiList(*folder, *json); }; });

  const auto [assign, assign_folder] = add("assign", "Give an enrolled node other clients");
  auto clients = std::make_shared<std::vector<std::string>>();
  auto assigned = std::make_shared<std::string>();
  assign->add_option("NAME", *assigned, "The node")->required();
  assign->add_option("--clients", *clients, "All that it owns from now on, or *")
      ->required()
      ->delimiter(',');
  assign->final_callback([=, folder = assign_folder, &run] {
    run = [=] { return PkiAssign(*folder, *assigned, *clients); };
  });

  const auto [revoke, revoke_folder] = add("revoke", "Shut a node out, from its next call on");
  auto node = std::make_shared<std::string>();
  revoke->add_option("NAME", *node, "The node")->required();
  revoke->add_option("--why", *why, "For the registry; the node is told, too");
  revoke->final_callback(
      [=, folder = revoke_folder, &run] { run = [=] { return PkiRevoke(*folder, *node, *why); }; });
}

void AddAudit(CLI::App& app, std::function<int()>& run) {
  CLI::App* audit =
      app.add_subcommand("audit", "Nodes that were let in, callers that were refused");
  audit->require_subcommand(1);
  CLI::App* verify = audit->add_subcommand("verify", "Check that no line was changed or taken out");
  auto path = std::make_shared<std::string>(), head = std::make_shared<std::string>();
  verify->add_option("PATH", *path, "An authority's folder, or one of its files")->required();
  verify->add_option("--head", *head, "What the digest of the last line must be");
  verify->final_callback([=, &run] { run = [=] { return AuditVerify(*path, *head); }; });
}

// Whether another program does the command: one that links gRPC.
bool IsForAdmin(int argc, char** argv) {
  if (argc < 2) return false;
  const std::string command = argv[1];
  const auto names_server = [](const char* argument) {
    return std::string(argument).starts_with("--server");
  };
  return command == "admin" ||
         (command == "doctor" && std::any_of(argv + 2, argv + argc, names_server));
}

// Becomes macaw-admin. Returns only if that fails.
int BecomeAdmin(char** argv) {
  const absl::StatusOr<std::string> folder = ProgramFolder();
  if (!folder.ok()) return Report(folder.status());
  const std::string program = *folder + "/macaw-admin";
  ::execv(program.c_str(), argv);
  return Report(absl::NotFoundError(absl::StrCat(program, " is missing beside macaw")));
}

int Main(int argc, char** argv) {
  if (IsForAdmin(argc, argv)) return BecomeAdmin(argv);
  ExplainUncaught("macaw");
  CLI::App app("Macaw: federated learning, simulated and deployed with the same programs", "macaw");
  app.set_version_flag("--version", "macaw " MACAW_VERSION);
  app.require_subcommand(1);
  std::function<int()> run;
  AddSimulate(app, run);
  AddData(app, run);
  AddLists(app, run);
  AddPrivacy(app, run);
  AddNew(app, run);
  AddPlugin(app, run);
  AddState(app, run);
  AddTimeline(app, run);
  AddReport(app, run);
  AddWatch(app, run);
  AddTrack(app, run);
  AddLog(app, run);
  AddReplay(app, run);
  AddCompare(app, run);
  AddSweep(app, run);
  AddPlan(app, run);
  AddPki(app, run);
  AddAudit(app, run);
  app.add_subcommand("admin", "See and steer a run while it goes on");  // for the list; see above
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return run();
}

}  // namespace
}  // namespace macaw::cli

int main(int argc, char** argv) { return macaw::cli::Main(argc, argv); }
