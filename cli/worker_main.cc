// macaw-worker: leases clients from a server and trains them on this machine.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/check_node.h"
#include "cli/command_line.h"
#include "cli/config/client_state.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/identity/certificates.h"
#include "cli/process/callers.h"
#include "cli/process/clock_watch.h"
#include "cli/process/exit.h"
#include "cli/process/kept_places.h"
#include "cli/process/limits.h"
#include "cli/process/programs.h"
#include "cli/process/signals.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/page_pool.h"
#include "core/status.h"
#include "data/hdf5/file.h"
#include "data/options.h"
#include "data/owners_rows.h"
#include "data/subset.h"
#include "identity/node_files.h"
#include "proto/wire/remote.h"
#include "training/backends.h"
#include "worker/worker.h"

namespace macaw::cli {
namespace {

// A device waits for its server through nights and holidays.
constexpr Duration kForEver = std::chrono::hours(24 * 365 * 10);

struct WorkerArguments {
  std::string config, run_dir, server, name;
  uint32_t slots = 0, first_slot = 0;
  std::string clients, own;
  std::string scratch, state, state_url, trace;
  std::string describe_script, out;
  std::string identity, code;  // of `macaw-worker enrol`
  bool check = false, enrol = false, renew = false;
  std::string plan;  // of `macaw-worker check`
  bool server_syncs_state = false, doctor = false;
  char** argv = nullptr;  // of this process
};

// The back ends of this program, and the modules that lie beside it.
training::Backends BackendsHere() {
  const absl::StatusOr<std::string> programs = ProgramFolder();
  return training::Backends(programs.ok() ? training::Backends::FolderBeside(*programs) : "");
}

// The lines that `macaw doctor` adds about the back ends.
void PrintDoctor() {
  training::Backends backends = BackendsHere();
  std::vector<std::string> names = backends.Installed();
  for (const char* name : {training::kTorchBackend, training::kCudaBackend}) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  }
  for (const std::string& name : names) {
    const absl::StatusOr<const training::Backend*> backend = backends.Find(name);
    const absl::Status error = training::IsMissingBackend(backend.status())
                                   ? backends.Missing(name, "")
                                   : backend.status();
    std::cout << absl::StrFormat(
        "%-12s %s: %s\n", "back end", name,
        backend.ok() ? (*backend)->Report() : std::string(error.message()));
  }
  const absl::Status hdf5 = data::Hdf5Module().status();
  std::cout << absl::StrFormat("%-12s hdf5: %s\n", "data",
                               hdf5.ok() ? "its module is there" : std::string(hdf5.message()));
}

absl::Status DescribeScript(const WorkerArguments& arguments) {
  training::Backends backends = BackendsHere();
  MACAW_ASSIGN_OR_RETURN(const training::Backend* const torch,
                         backends.Find(training::kTorchBackend));
  return torch->DescribeScript(arguments.describe_script, arguments.out);
}

std::string DefaultName() {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, "-", ::getpid());
}

// Reads the server's address from the folder that the server shares with its workers.
absl::StatusOr<std::string> AddressIn(const std::string& run_dir) {
  const absl::StatusOr<std::string> text = ReadFile(AddressFile(run_dir));
  if (text.ok()) return std::string(absl::StripAsciiWhitespace(*text));
  return absl::NotFoundError(absl::StrCat(text.status().message(),
                                          ": start macaw-server --run-dir ", run_dir,
                                          " first, or give --server"));
}

// Takes what the command line leaves open from the run's folder, if one is named.
absl::Status FillIn(WorkerArguments& arguments) {
  if (arguments.run_dir.empty()) return absl::OkStatus();
  if (arguments.server.empty()) {
    MACAW_ASSIGN_OR_RETURN(arguments.server, AddressIn(arguments.run_dir));
  }
  const auto fill = [&](std::string& value, const char* name) {
    if (value.empty()) value = absl::StrCat(arguments.run_dir, "/", name);
  };
  fill(arguments.config, "node.toml");
  fill(arguments.scratch, "scratch");
  fill(arguments.state, "state");
  return absl::OkStatus();
}

// The clients that this node has.
absl::StatusOr<std::unique_ptr<data::Dataset>> DatasetOf(const WorkerArguments& arguments,
                                                         const Config& config,
                                                         const sdk::Catalogue& catalogue) {
  if (!arguments.own.empty()) {
    return catalogue.OpenDataset({.source = "prepared", .path = arguments.own}, {});
  }
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  if (arguments.clients.empty()) return dataset;
  const std::pair<absl::string_view, absl::string_view> range =
      absl::StrSplit(arguments.clients, absl::MaxSplits(':', 1));
  data::SubsetRange subset;
  if (!absl::SimpleAtoi(range.first, &subset.begin) || !absl::SimpleAtoi(range.second, &subset.end))
    return absl::InvalidArgumentError(
        absl::StrCat("--clients ", arguments.clients, ": not two numbers, as in 50:200"));
  return data::TakeSubset(std::move(dataset), subset);
}

// Reads the token and removes it from the environment, so that no program started from here gets
// it.
std::string TokenOfThisProcess() {
  const char* const value = ::getenv(kTokenVariable);
  std::string token = value != nullptr ? value : "";
  ::unsetenv(kTokenVariable);
  return token;
}

// How a node of a fleet beyond this host shows who it is; none where the node file names no
// identity.
std::optional<identity::IdentityFiles> IdentityOf(const Config& config) {
  if (config.node.fleet.identity.empty()) return std::nullopt;
  return identity::IdentityFiles::In(config.node.fleet.identity);
}

// The rows of a device are no test set for all. Where its file says nothing of one, none is cut;
// where it says nothing of clients, it is one.
absl::Status KeepRowsOfDevice(data::DataOptions& data, data::PartitionOptions& partition) {
  if (partition.scheme == "auto" && partition.clients == 0) partition.clients = 1;
  if (data.source == "synthetic") return absl::OkStatus();  // its fraction is of each client's rows
  for (const auto& [key, value] : {std::pair{"test_fraction", data.test_fraction.value_or(0)},
                                   {"central_val_fraction", data.central_val_fraction}}) {
    if (value == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "data.", key, " = ", value,
        ": this node is a device, and its rows are no test set for all. Leave the key out (",
        "data.client_test_fraction keeps test rows of its own), or invite the node with --role "
        "worker"));
  }
  data.test_fraction = 0;
  return absl::OkStatus();
}

// A node has the name and the role of its certificate; any other process is a worker with the name
// that it is given.
absl::StatusOr<identity::Subject> SubjectOf(const WorkerArguments& arguments,
                                            const std::optional<identity::IdentityFiles>& files) {
  if (!files.has_value()) {
    return identity::Subject{arguments.name.empty() ? DefaultName() : arguments.name,
                             identity::Role::kWorker};
  }
  MACAW_ASSIGN_OR_RETURN(const identity::NodeIdentity own, identity::ReadIdentity(*files));
  const identity::Subject& subject = own.certificate.subject();
  if (arguments.name.empty() || arguments.name == subject.name) return subject;
  return absl::InvalidArgumentError(absl::StrCat("--name ", arguments.name, ": the certificate of ",
                                                 files->certificate, " says ", subject.name));
}

worker::Options OptionsOf(const WorkerArguments& arguments, const Config& config,
                          const data::Dataset& dataset, const sdk::Catalogue& catalogue,
                          training::Backends& backends) {
  const worker::FleetConfig& node = config.node.fleet;
  worker::Options options;
  if (!node.identity.empty()) {
    options.reconnect_for = kForEver;
    options.longest_pause = std::chrono::minutes(1);
  }
  options.owner = node.owner || !arguments.own.empty();
  options.by_name = !arguments.clients.empty() || options.owner || dataset.info().declared;
  options.accept = node.accept;
  options.enrolled = !node.identity.empty();
  options.redact_errors = node.redact_errors;
  const worker::WorkersConfig& workers = config.node.workers;
  options.slots = arguments.slots;
  if (options.slots == 0) {
    // Where GPUs cannot be counted, the back end says why when it is asked for trainers.
    const bool counts = workers.slots == 0 && workers.backend.name == training::kCudaBackend;
    options.slots =
        SlotsPerProcess(workers, counts ? backends.DevicesFor(workers.backend).value_or(1) : 0);
  }
  options.backend = config.node.workers.backend;
  options.emulation = config.node.workers.emulation;
  options.first_slot = arguments.first_slot;
  options.run_slots = config.node.workers.processes * options.slots;
  options.backend.program.first_slot = options.first_slot;
  options.backend.program.slots = std::max(options.run_slots, options.first_slot + options.slots);
  options.program = "macaw-worker " MACAW_VERSION;
  options.scratch_dir = arguments.scratch;
  options.plugins = catalogue.plugins();
  options.state = StoreOptionsOf(config, "");
  if (options.state.path.empty()) options.state.path = arguments.state;
  if (!arguments.state_url.empty()) options.state.url = arguments.state_url;
  // An enrolled node takes part in one run after the other: it ends with a run and its supervisor
  // starts it again. The folder of --run-dir is one run's.
  options.state.each_run = options.enrolled && arguments.run_dir.empty();
  if (arguments.server_syncs_state) options.state.sync = false;
  options.script = config.node.model_script;
  options.trace = arguments.trace;
  return options;
}

// Large vectors lie in the scratch folder, where the node's file says so.
absl::Status UseFiles(const Config& config, const WorkerArguments& arguments) {
  const uint64_t from = config.node.fleet.files_from;
  if (from == 0) return absl::OkStatus();
  if (arguments.scratch.empty()) {
    return absl::InvalidArgumentError(
        "node.files_from puts large vectors into the scratch folder: give --scratch FOLDER");
  }
  MACAW_RETURN_IF_ERROR(MakeDirectories(arguments.scratch));
  return Annotate(KeepLargeBlocksIn(arguments.scratch, from), "node.files_from");
}

absl::Status Work(const WorkerArguments& arguments, SignalFd& signals) {
  std::stop_source stop;
  const SignalThread watcher(signals, [&stop](int) { stop.request_stop(); });
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(arguments.config));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, {}));
  MACAW_ASSIGN_OR_RETURN(Config config, ReadNodeConfig(document, {}, catalogue));
  MACAW_RETURN_IF_ERROR(UseFiles(config, arguments));
  const std::optional<identity::IdentityFiles> identity = IdentityOf(config);
  MACAW_ASSIGN_OR_RETURN(const identity::Subject subject, SubjectOf(arguments, identity));
  const bool device = subject.role == identity::Role::kDevice;
  if (device) MACAW_RETURN_IF_ERROR(KeepRowsOfDevice(config.node.data, config.node.partition));
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<data::Dataset> dataset,
                         DatasetOf(arguments, config, catalogue));
  if (device) dataset = data::OwnersRows(std::move(dataset), subject.name);
  training::Backends backends = BackendsHere();
  worker::Options options = OptionsOf(arguments, config, *dataset, catalogue, backends);
  options.name = subject.name;
  if (arguments.check)
    return CheckNode(document, config, arguments.plan, options, *dataset, catalogue, backends);

  std::string server = arguments.server.empty() ? config.node.fleet.server : arguments.server;
  if (server.empty()) server = config.node.server.listen;
  if (server.empty())
    return absl::InvalidArgumentError("no server to dial: give --server or node.server");
  wire::ClientOptions dial{.server = server,
                           .token = TokenOfThisProcess(),
                           .identity = identity,
                           .max_upload = config.node.fleet.max_upload,
                           .max_download = config.node.fleet.max_download};
  if (identity.has_value()) dial.partial_downloads = config.node.fleet.identity + "/downloads";
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<fleet::FleetLink> link, wire::Dial(dial));
  std::optional<CertificateKeeper> keeper;
  std::optional<ClockWatch> clock;
  if (identity.has_value()) {
    clock.emplace([argv = arguments.argv](Duration back) {
      Logger("worker").Warning(
          absl::StrCat("starts_again why=\"the clock was set back by ", ToSeconds(back), " s\""));
      StartAgain(argv);
    });
    keeper.emplace(server, *identity);
    options.renew = [&] { return wire::RenewCertificate(server, *identity); };
    options.start_again = [argv = arguments.argv](const std::string& why) {
      Logger("worker").Warning(absl::StrCat("starts_again why=\"", why, "\""));
      StartAgain(argv);
    };
  }
  return worker::Run(options, *dataset, *link, catalogue.algorithms(), backends, stop.get_token());
}

void AddOptions(CLI::App& app, WorkerArguments& arguments) {
  app.add_option(
      "--config", arguments.config,
      "This node's configuration (TOML): [node], [accept], [data], [partition], [workers], "
      "[emulation], [state], model.torchscript");
  app.add_option("--run-dir", arguments.run_dir,
                 "The folder of a run on this host: gives --config, --server, --scratch and "
                 "--state what is not given");
  app.add_option("--server", arguments.server,
                 "host:port or unix:PATH (default: node.server, or server.listen)");
  app.add_option("--name", arguments.name,
                 "Stable over restarts (default: host name and process id)");
  app.add_option("--slots", arguments.slots,
                 "Clients trained at a time (default: workers.slots, or the cores)");
  app.add_option("--clients", arguments.clients,
                 "BEGIN:END: of the data's clients only these are here, and END is not");
  app.add_option("--own", arguments.own,
                 "A prepared file in place of [data]: this node owns its clients, and only it "
                 "trains them")
      ->excludes("--clients");
  app.add_option("--first-slot", arguments.first_slot,
                 "Number of its first slot among all of the run's (for workers.slowdown)");
  app.add_option("--scratch", arguments.scratch,
                 "A folder of this node's own for what should outlive a crash");
  app.add_option("--state", arguments.state,
                 "A folder for the states of clients, shared by the run's workers on this host "
                 "(state.path wins)");
  app.add_option("--state-url", arguments.state_url,
                 "Where the Redis with the states of clients is (wins over state.url)");
  app.add_flag("--server-syncs-state", arguments.server_syncs_state,
               "The server makes states durable before a checkpoint names them: commits need not");
  app.add_option("--trace", arguments.trace,
                 "Append to this file which rows each batch of each client had (JSON lines)");
  app.add_option("--describe-script", arguments.describe_script,
                 "Write what this scripted module (TorchScript) holds to --out, and end");
  app.add_option("--out", arguments.out, "The file that --describe-script writes (safetensors)");
  app.add_flag("--doctor", arguments.doctor, "Print the back ends and what they can do, and end");
  CLI::App* enrol = app.add_subcommand(
      "enrol", "Get this node's certificate with the code of `macaw pki invite`");
  enrol->add_option("--server", arguments.server, "host:port of the fleet's server")->required();
  enrol
      ->add_option("--identity", arguments.identity,
                   "The folder for the node's key and certificates (node.identity)")
      ->required();
  enrol->callback([&arguments] { arguments.enrol = true; });
  CLI::App* renew = app.add_subcommand(
      "renew",
      "Get a new certificate now; workers do it by themselves, operators and nodes that were off for "
      "up to 90 days beyond its end may ask for it");
  renew->add_option("--server", arguments.server, "host:port of the fleet's server")->required();
  renew->add_option("--identity", arguments.identity, "The folder with the certificate")
      ->required();
  renew->callback([&arguments] { arguments.renew = true; });
  CLI::App* check = app.add_subcommand(
      "check", "Read this node's data, train one step, and say what is wrong; sends nothing");
  check->add_option("--config", arguments.config, "This node's configuration")->required();
  check->add_option("--plan", arguments.plan,
                    "A server's file (`macaw plan`): try this run instead of a small one");
  check->callback([&arguments] { arguments.check = true; });
  enrol
      ->add_option(
          "CODE", arguments.code,
          "What `macaw pki invite` printed; - reads it from standard input, so that no list "
          "of processes shows it")
      ->required();
}

int Enrol(const WorkerArguments& arguments) {
  std::string code = arguments.code;
  if (code == "-") {
    std::getline(std::cin, code);
    code = std::string(absl::StripAsciiWhitespace(code));
  }
  const absl::Status status = EnrolNode(arguments.server, arguments.identity, code);
  if (status.ok()) return kExitOk;
  PrintError("macaw-worker", status.message());
  return absl::IsUnavailable(status) ? kExitUnanswered : kExitUsage;
}

int Renew(const WorkerArguments& arguments) {
  const absl::Status status =
      wire::RenewCertificate(arguments.server, identity::IdentityFiles::In(arguments.identity));
  if (status.ok()) {
    std::cout << "renewed: " << arguments.identity << std::endl;
    return kExitOk;
  }
  PrintError("macaw-worker", status.message());
  return absl::IsUnavailable(status) ? kExitUnanswered : kExitUsage;
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  ExplainEndings("macaw-worker", Endings::kLogLine);
  WorkerArguments arguments{.argv = argv};
  CLI::App app("A worker: leases clients from a server and trains them here", "macaw-worker");
  app.set_version_flag("--version", "macaw-worker " MACAW_VERSION);
  AddOptions(app, arguments);
  if (const auto code = ParseCommandLine(app, "macaw-worker", argc, argv)) return *code;
  if (arguments.enrol) return Enrol(arguments);
  if (arguments.renew) return Renew(arguments);
  if (arguments.doctor) {
    PrintDoctor();
    return kExitOk;
  }
  if (!arguments.describe_script.empty()) {
    const absl::Status status = DescribeScript(arguments);
    if (status.ok()) return kExitOk;
    PrintError("macaw-worker", status.message());
    return training::IsMissingBackend(status) ? kExitMissingBackend : kExitUsage;
  }
  if (const absl::Status status = FillIn(arguments); !status.ok()) {
    PrintError("macaw-worker", status.message());
    return kExitUsage;
  }
  if (arguments.config.empty()) {
    PrintError("macaw-worker", "--config or --run-dir is required");
    return kExitUsage;
  }

  ::signal(SIGPIPE, SIG_IGN);
  InitLogging("macaw-worker");
  absl::Status status = EnsureOpenFiles();
  if (status.ok()) {
    absl::StatusOr<SignalFd> signals = SignalFd::Open();
    status = signals.ok() ? Work(arguments, *signals) : signals.status();
  }
  if (status.ok()) return kExitOk;
  PrintError("macaw-worker", status.message());
  if (training::IsMissingBackend(status)) return kExitMissingBackend;
  if (absl::IsUnavailable(status)) return kExitUnanswered;
  if (absl::IsResourceExhausted(status)) return kExitNoRoom;
  return WouldEndTheSame(status, Starts::kWorker) ? kExitUsage : kExitFailed;
}

}  // namespace
}  // namespace macaw::cli

int main(int argc, char** argv) {
  return macaw::cli::CloseOutput("macaw-worker", macaw::cli::Main(argc, argv));
}
