#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/commands.h"
#include "cli/config/document.h"
#include "cli/config/reader.h"
#include "cli/diff/trace.h"
#include "cli/process/exit.h"
#include "cli/process/limits.h"
#include "cli/results/contribution.h"
#include "cli/results/model_distance.h"
#include "cli/results/result.h"
#include "cli/results/text.h"
#include "cli/simulate/client_names.h"
#include "cli/simulate/made_again.h"
#include "cli/simulate/simulate.h"
#include "core/files.h"
#include "core/shell.h"
#include "core/spelling.h"
#include "core/status.h"
#include "sdk/catalogue.h"
#include "server/log/history.h"

namespace macaw::cli {
namespace {

// `macaw replay RUN --out DIR`: runs a run again as a simulation. What depended on time or faults
// is read from RUN's log: which clients were present, which were given up in which round, and how
// many rounds were done. Then reports whether both runs ended with the same model.
struct ReplayCommand {
  std::string run;
  std::string out;
  // The configuration of the simulation. "": RUN's own. A deployed run needs it, because its server
  // has no data.
  std::string config;
  std::vector<std::string> set;                 // --set section.key=value, over `config`
  std::optional<std::string> processes, slots;  // as written; checked like their keys
  std::vector<std::string> without_names;       // clients that no round trains, as written
  std::vector<uint64_t> without;                // their numbers
  std::vector<std::string> without_called;      // and their names; "": it has none
  bool force = false;                           // overwrite a run in `out`
  bool quiet = false;
};

namespace log = server::log;

std::string LogOf(const std::string& run) { return run + "/rounds.log"; }

// Reads a log, and refuses it unless it contains everything that a replay needs.
absl::StatusOr<log::History> ReadRepeatable(const std::string& run) {
  if (!FileExists(LogOf(run))) {
    return MissingFile(LogOf(run), absl::StrCat(run, " has no log of rounds (", LogOf(run),
                                                "), so it cannot be repeated"));
  }
  MACAW_ASSIGN_OR_RETURN(log::History history, log::ReadHistory(LogOf(run)));
  if (history.completed().value == 0)
    return absl::FailedPreconditionError(absl::StrCat(run, " has not done any round yet"));
  if (history.rounds().begin()->first > Round(1)) {
    return absl::FailedPreconditionError(absl::StrCat("the log of ", run, " begins with round ",
                                                      history.rounds().begin()->first.value,
                                                      ", so the run cannot be repeated"));
  }
  for (const log::RunOpened& session : history.sessions()) {
    if (session.reset_states.empty()) continue;
    return absl::UnimplementedError(
        absl::StrCat("in ", run, " clients gave their states up after round ",
                     session.completed.value, " (--state-reset), which cannot be repeated"));
  }
  return history;
}

// Explains a difference, if the logs show a reason.
std::string Advice(const log::History& recorded, const log::History& repeated,
                   const std::string& difference) {
  if (recorded.sessions().front().configuration != repeated.sessions().front().configuration)
    return "; the configuration is another one, or was read by another version of Macaw";
  if (recorded.profile() != repeated.profile()) {
    return absl::StrCat("; the numeric profile was ", recorded.profile(), " and is now ",
                        repeated.profile());
  }
  if (absl::StrContains(difference, log::kOthersToDrawFrom)) {
    return "; a fleet numbers its clients in the order of their names, and a file in that of their "
           "first rows: sort the file by its clients";
  }
  return "";
}

// The configuration to simulate. Refuses that of a server without data.
absl::StatusOr<std::string> ConfigurationOf(const ReplayCommand& command) {
  if (!command.config.empty()) return command.config;
  const std::string own = command.run + "/config.toml";
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(own));
  MACAW_ASSIGN_OR_RETURN(const std::optional<Value> source, Lookup(document, {}, "data.source"));
  if (source.has_value()) return own;
  return absl::InvalidArgumentError(absl::StrCat(
      "the server of ", command.run,
      " had no data: --config names the simulation that has it (with --set, as it was planned)"));
}

// The rounds that the configuration asks for; 0: a private run's budget says when it ends.
absl::StatusOr<uint32_t> PlannedRounds(const Document& document,
                                       const std::vector<Override>& overrides) {
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, overrides));
  MACAW_ASSIGN_OR_RETURN(const Config read,
                         ReadConfig(document, overrides, catalogue, Idle::kLeaveOut));
  return read.node.server.stop.metric == "rule_epsilon" ? 0 : read.run.rounds;
}

// Finds the clients of --without. The run's data is opened for their names, which may be numbers.
absl::Status FindWithout(ReplayCommand& command) {
  if (command.without_names.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> found = ClientNamesOf(command.run);
  if (!std::ranges::all_of(command.without_names, IsClientNumber)) {
    MACAW_RETURN_IF_ERROR(Annotate(
        found.status(), "--without: the clients' names cannot be read (their numbers work, too)"));
  }
  const std::vector<std::string> names = found.value_or(std::vector<std::string>());
  for (const std::string& client : command.without_names) {
    const absl::StatusOr<uint64_t> number = ClientNumber(client, names);
    MACAW_RETURN_IF_ERROR(Annotate(number.status(), "--without"));
    command.without.push_back(*number);
    command.without_called.push_back(*number < names.size() ? names[*number] : "");
  }
  return absl::OkStatus();
}

// Refuses clients without which the run is the same, and runs whose rounds depend on when clients
// came.
absl::Status CheckWithout(const ReplayCommand& command, const log::History& history) {
  if (command.without.empty()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const uint64_t clients, ClientCountOf(command.run));
  for (size_t i = 0; i < command.without.size(); ++i) {
    if (clients > 0 && command.without[i] >= clients) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--without ", command.without_names[i], ": ", command.run, " has ",
          Counted(clients, "client"),
          clients > 1 ? absl::StrCat(", with the numbers 0 to ", clients - 1) : ", number 0"));
    }
    if (log::RoundsThatCounted(ClientId(command.without[i]), history) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--without ", command.without_names[i], ": no round of ", command.run,
                     " has counted that client, so the model without it is the run's own"));
  }
  const bool arrives = history.rounds().begin()->second.begin()->second.opened.arrivals > 0;
  if (!arrives) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("--without: a round of ", command.run,
                   " closed when enough devices had arrived, and without a client it would have "
                   "closed with others, whose times nobody knows"));
}

// A run without a client is not compared with its log, so configuration and data must be those of
// the run. With --config they are what the user says, and the first round is compared.
absl::Status CheckIsTheSame(const ReplayCommand& command, const Document& document,
                            const std::vector<Override>& overrides, const log::History& recorded) {
  if (!command.config.empty()) return absl::OkStatus();
  for (const Override& override : overrides)
    MACAW_RETURN_IF_ERROR(CheckMaySet(override, "a run without a client"));
  MACAW_ASSIGN_OR_RETURN(const std::string digest, ConfigurationDigest(document, overrides));
  if (digest != recorded.sessions().back().configuration.Hex()) {
    return absl::AbortedError(absl::StrCat(
        "--without: ", document.name,
        " is not what the log was written with: it has changed, or was read by another version of "
        "Macaw. `macaw replay ",
        ForShell(command.run), "` without --without says whether it repeats the run, and --config ",
        ForShell(document.name), " takes it as it is"));
  }
  MACAW_ASSIGN_OR_RETURN(const RunResult result, ReadResult(command.run));
  const absl::Status data =
      Annotate(CheckDataOf(document, overrides, result.data_digest), "--without");
  return absl::IsFailedPrecondition(data) ? absl::AbortedError(data.message()) : data;
}

// Refuses other data than the run's before any training. The run's summary.json has the digest of
// its data; a run without a summary is not checked. With --config the data are the user's choice.
absl::Status CheckData(const ReplayCommand& command, const Document& document,
                       const std::vector<Override>& overrides) {
  const absl::StatusOr<RunResult> result = ReadResult(command.run);
  if (!command.config.empty() || !result.ok()) return absl::OkStatus();
  const absl::Status status = CheckDataOf(document, overrides, result->data_digest);
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(command.run, " cannot be repeated: ", status.message(),
                   "; put those back, or name them (--set data.path=PATH)"));
}

// Says so if what the runs have in common is not the same.
absl::Status CheckBegan(const ReplayCommand& command, const log::History& recorded,
                        const log::History& repeated) {
  std::string what;
  if (const auto difference = log::StartDifference(recorded, repeated)) {
    what = absl::StrCat("they differ in round 1 before anybody trains: ", *difference,
                        Advice(recorded, repeated, *difference));
  } else if (command.config.empty()) {  // of owners, only now
    MACAW_ASSIGN_OR_RETURN(const RunResult with, ReadResult(command.run));
    MACAW_ASSIGN_OR_RETURN(const RunResult without, ReadResult(command.out));
    if (with.data_digest != without.data_digest) what = "the data are others";
  }
  if (what.empty()) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(command.out, " is not ", command.run, " without a client: ", what));
}

// What the run has kept of the model without the client's updates (evaluation.unlearn).
struct FirstOrder {
  std::string file;
  std::map<std::string, double> metrics;  // "test_loss"; empty: it was not evaluated
};

// nullopt: the run has kept none, or several clients are left out.
std::optional<FirstOrder> FirstOrderOf(const ReplayCommand& command) {
  if (command.without.size() != 1) return std::nullopt;
  const uint64_t client = command.without.front();
  FirstOrder first{.file = absl::StrCat(command.run, "/unlearned/", client, ".safetensors")};
  if (!FileExists(first.file)) return std::nullopt;
  const auto told = ReadContributions(command.run).value_or(std::vector<ClientContribution>());
  const auto found = std::ranges::find(told, client, &ClientContribution::client);
  if (found != told.end()) first.metrics = found->unlearned;
  return first;
}

// How far the model of the run without the client is from the run's, and from that of the first
// order.
absl::Status TellDistances(const ReplayCommand& command, const FirstOrder& first) {
  const std::string retrained = command.out + "/model.safetensors";
  MACAW_ASSIGN_OR_RETURN(const double from_run,
                         DistanceOfModels(command.run + "/model.safetensors", retrained));
  MACAW_ASSIGN_OR_RETURN(const double from_first, DistanceOfModels(first.file, retrained));
  std::cout << absl::StrFormat("distance   %.4g from the run's model, %.4g from %s\n", from_run,
                               from_first, first.file);
  return absl::OkStatus();
}

// Where the runs do not end alike, by a rule of run.stop. `planned`: rounds of the configuration.
void TellEnds(const log::History& recorded, const log::History& repeated, uint32_t planned) {
  const uint32_t rounds = recorded.completed().value;
  const auto& ended = repeated.ended();
  if (!ended.has_value()) return;
  if (ended->rounds < rounds) {
    std::cout << absl::StrCat("end        stopped after round ", ended->rounds, ": ", ended->why,
                              "; the log ends after round ", rounds, "\n");
  } else if (ended->how == log::End::kFinished && planned > rounds) {
    std::cout << absl::StrCat("end        the run would have gone on; the log ends after round ",
                              rounds, "\n");
  }
}

// The last round that has a value of the metric; 0: none.
uint32_t LastRoundOf(const std::string& metric, const std::map<uint32_t, MetricsRow>& rows) {
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    if (row->second.contains(metric)) return row->first;
  }
  return 0;
}

// What the run and the one without some of its clients ended with.
absl::Status CompareWithout(const ReplayCommand& command, const log::History& recorded) {
  MACAW_ASSIGN_OR_RETURN(const RunResult with, ReadResult(command.run));
  MACAW_ASSIGN_OR_RETURN(const RunResult without, ReadResult(command.out));
  for (size_t i = 0; i < command.without.size(); ++i) {
    const uint64_t client = command.without[i];
    const std::string& called = command.without_called[i];
    const std::string name =
        called.empty() || called == absl::StrCat(client) ? "" : absl::StrCat(" (", called, ")");
    std::cout << absl::StrFormat("without    client %d%s, which %d of %d rounds had counted\n",
                                 client, name, log::RoundsThatCounted(ClientId(client), recorded),
                                 recorded.completed().value);
  }
  std::cout << "model      " << without.model_digest
            << (without.model_digest == with.model_digest ? ", as with it" : "") << "\n";
  const std::optional<FirstOrder> first = FirstOrderOf(command);
  if (first.has_value()) MACAW_RETURN_IF_ERROR(TellDistances(command, *first));
  MACAW_ASSIGN_OR_RETURN(const Trace trace_with, ReadTrace(command.run, {}));
  MACAW_ASSIGN_OR_RETURN(const Trace trace_without, ReadTrace(command.out, {}));
  std::vector<std::vector<std::string>> lines = {{"metric", "with", "without"}};
  if (first.has_value()) lines[0].emplace_back("first order");
  for (const auto& [metric, value] : without.final) {
    const bool told = metric.starts_with("test_") || metric.starts_with("clients_test_");
    const auto before = with.final.find(metric);
    if (!told || before == with.final.end()) continue;
    lines.push_back({metric, MetricText(before->second), MetricText(value)});
    const uint32_t round_with = LastRoundOf(metric, trace_with.rows),
                   round_without = LastRoundOf(metric, trace_without.rows);
    if (round_with != round_without) {
      absl::StrAppend(&lines.back()[1], " (round ", round_with, ")");
      absl::StrAppend(&lines.back()[2], " (round ", round_without, ")");
    }
    if (!first.has_value()) continue;
    const auto unlearned = first->metrics.find(metric);
    lines.back().push_back(unlearned == first->metrics.end() ? "-" : MetricText(unlearned->second));
  }
  if (lines.size() > 1) std::cout << AlignedText(lines);
  std::cout.flush();
  return absl::OkStatus();
}

// kAborted: the run and its repetition differ, or the run without a client is not that run's.
absl::StatusOr<int> Repeat(ReplayCommand command) {
  MACAW_ASSIGN_OR_RETURN(const log::History recorded, ReadRepeatable(command.run));
  std::error_code ignored;
  if (std::filesystem::equivalent(command.run, command.out, ignored))
    return absl::InvalidArgumentError("--out is the run itself: name another folder");
  MACAW_RETURN_IF_ERROR(FindWithout(command));
  MACAW_RETURN_IF_ERROR(CheckWithout(command, recorded));
  MACAW_ASSIGN_OR_RETURN(const std::string config, ConfigurationOf(command));
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(config));
  MACAW_ASSIGN_OR_RETURN(const std::vector<Override> overrides, ParseOverrides(command.set));
  MACAW_RETURN_IF_ERROR(command.without.empty()
                            ? CheckData(command, document, overrides)
                            : CheckIsTheSame(command, document, overrides, recorded));
  std::vector<std::string> set = command.set;
  // Its rounds are others.
  if (!command.without.empty()) {
    set.emplace_back("evaluation.leave_one_out=0");
    set.emplace_back("evaluation.unlearn=[]");
  }
  const int code = Simulate({.config = config,
                             .set = set,
                             .out = command.out,
                             .rounds = absl::StrCat(recorded.completed().value),
                             .processes = command.processes,
                             .slots = command.slots,
                             .replay = LogOf(command.run),
                             .without = command.without,
                             .force = command.force,
                             .quiet = command.quiet});
  if (code != kExitOk) return code == kExitFailed ? kExitUsage : code;
  MACAW_ASSIGN_OR_RETURN(const log::History repeated, log::ReadHistory(LogOf(command.out)));
  if (!command.without.empty()) {
    MACAW_RETURN_IF_ERROR(CheckBegan(command, recorded, repeated));
    MACAW_RETURN_IF_ERROR(CompareWithout(command, recorded));
    MACAW_ASSIGN_OR_RETURN(const uint32_t planned, PlannedRounds(document, overrides));
    TellEnds(recorded, repeated, planned);
    return kExitOk;
  }
  if (const auto difference = log::FirstDifference(recorded, repeated)) {
    return absl::AbortedError(absl::StrCat(command.out, " does not repeat ", command.run,
                                           ": they differ in ", *difference,
                                           Advice(recorded, repeated, *difference)));
  }
  std::cout << "same       " << recorded.completed().value
            << (recorded.completed().value == 1 ? " round" : " rounds");
  const auto& ended = recorded.ended();
  if (ended.has_value() && Round(ended->rounds) == recorded.completed() && !ended->model.IsZero()) {
    std::cout << ", and the same model: " << ended->model.Hex();
  } else {
    std::cout << "; what the run's own model was after the last one, its log does not say";
  }
  std::cout << std::endl;
  return kExitOk;
}

int Replay(const ReplayCommand& command) {
  LeaveOneForADifference();
  const absl::Status files = EnsureOpenFiles();
  const absl::StatusOr<int> code = files.ok() ? Repeat(command) : files;
  if (code.ok()) return *code;
  (void)Report(code.status());
  return absl::IsAborted(code.status()) ? kExitDiffers : kExitUsage;
}

}  // namespace

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
  command
      ->add_option("--without", options->without_names,
                   "Leave this client out of every round: the model of a run that never had it; "
                   "its number, or its name; \"#3\" is number 3 where 3 is a name, too")
      ->allow_extra_args(false);
  command->add_flag("--force", options->force, "Replace a run that is in the folder already");
  command->add_flag("-q,--quiet", options->quiet, "No progress");
  command->footer(
      "Clients that the run had to do without are not trained; everything else is computed again.\n"
      "With --without the metrics of both are told, beside those of a model that evaluation.unlearn "
      "has kept; 0 says that the run was done, and 1 that data or configuration are not the run's.\n"
      "Exit codes: 0 the same rounds and the same model, 1 they differ (the first round that does "
      "is named), 2 it cannot say: bad usage, no such log, (without --without) data that are not "
      "the run's, or a simulation that failed, 5 a back end is missing, 130 interrupted.");
  command->final_callback([=, &run] { run = [options] { return Replay(*options); }; });
}

}  // namespace macaw::cli
