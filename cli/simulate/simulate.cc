#include "cli/simulate/simulate.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "algorithms/around/registry.h"
#include "cli/config/client_state.h"
#include "cli/config/inputs.h"
#include "cli/config/notes.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/config/writer.h"
#include "cli/results/result.h"
#include "cli/simulate/backend.h"
#include "cli/simulate/estimate.h"
#include "cli/simulate/going_on.h"
#include "cli/simulate/model_step.h"
#include "cli/simulate/opening_lines.h"
#include "cli/simulate/output.h"
#include "cli/simulate/overrides.h"
#include "cli/simulate/owners.h"
#include "cli/simulate/run.h"
#include "cli/simulate/run_folder.h"
#include "cli/simulate/run_states.h"
#include "cli/simulate/script.h"
#include "cli/track/tracking.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "core/shell.h"
#include "core/status.h"
#include "core/utf8.h"
#include "data/dataset.h"
#include "plan/real_arrivals.h"
#include "server/checkpoint.h"
#include "server/journal/recovery.h"
#include "server/opening.h"
#include "training/backends.h"

namespace macaw::cli {
namespace {

// Of a run with durable commits, from which it goes on without a checkpoint.
bool HasJournal(const std::string& folder) { return FileExists(server::JournalFolder(folder)); }
bool CanGoOn(const std::string& folder) {
  return server::HasCheckpoint(folder) || HasJournal(folder);
}

// One run, from its configuration to its result on disk. The order matters: every error of the
// configuration is found before a folder is made.
class Run {
 public:
  Run(const SimulateOptions& options, const Document& document, const sdk::Catalogue& catalogue,
      Output& output)
      : options_(options), document_(document), catalogue_(catalogue), output_(output) {}

  // Later overrides (`extra`) win.
  absl::Status Compose(const std::vector<Override>& extra, Idle idle = Idle::kRefuse) {
    const bool resume = !options_.resume.empty();
    MACAW_ASSIGN_OR_RETURN(std::vector<Override> overrides, OverridesOf(options_, document_));
    if (resume) MACAW_RETURN_IF_ERROR(CheckResumable(overrides, document_, catalogue_));
    overrides.insert(overrides.end(), extra.begin(), extra.end());
    // The file of a run that goes on may be of a release that listed every key.
    MACAW_ASSIGN_OR_RETURN(
        config_, ReadConfig(document_, overrides, catalogue_, resume ? Idle::kLeaveOut : idle));
    MACAW_RETURN_IF_ERROR(CheckTrackers(config_.node.track));
    const bool new_stop = std::ranges::any_of(overrides, [](const Override& override) {
      return override.key == "run.stop" || override.key.starts_with("run.stop.");
    });
    return resume ? ComposeResumed(new_stop) : ComposeNew();
  }

  // A resumed run replaces its files when its first round is done. Until then it may be refused or
  // interrupted, and then nothing has changed.
  absl::StatusOr<SupervisedEnd> Go() {
    const bool resume = !options_.resume.empty();
    const std::string next = resume ? ".next" : "";
    const std::string config = folder_->path + "/config.toml", node = folder_->path + "/node.toml";
    MACAW_RETURN_IF_ERROR(WriteFiles(config + next, node + next));
    MACAW_RETURN_IF_ERROR(MakeOwners(config_, catalogue_, folder_->path));
    const std::optional<Round> kept = server::NewestCheckpoint(folder_->path);
    bool replaced = !resume;
    absl::Status replacing;
    output_.Event({{"event", "begun"},
                   {"folder", AbsolutePath(folder_->path)},
                   {"rounds", config_.run.rounds}});
    const auto replace = [&] {
      if (replaced) return;
      replaced = true;
      replacing = WriteFiles(config, node);
    };
    const Fd steps(options_.step ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : -1);
    if (options_.step && !steps.open())
      return absl::ErrnoToStatus(errno, "--step: there is no standard input");
    const absl::StatusOr<SupervisedEnd> end = RunInChildren(
        config_, {.folder = folder_->path,
                  .config_file = config + next,
                  .node_file = node + next,
                  .lock = folder_->lock.get(),
                  .on_row =
                      [&](const std::string& row) {
                        replace();
                        output_.Row(row);
                      },
                  .on_message = [&](const std::string& message) { output_.Message(message); },
                  .resume = resume,
                  .stateful = stateful_,
                  .state_reset = options_.state_reset,
                  .replay = options_.replay,
                  .without = options_.without,
                  .evaluate_after = options_.evaluate_after,
                  .trace = options_.trace,
                  .steps = options_.step ? steps.get() : -1,
                  .quiet = options_.quiet,
                  .silent = options_.json});
    // The row of a round that is kept may still be owed.
    const bool finished = end.ok() && *end == SupervisedEnd::kFinished;
    if (finished || server::NewestCheckpoint(folder_->path) != kept) replace();
    std::error_code ignored;
    for (const std::string& file : {config, node}) {
      if (resume) std::filesystem::remove(file + next, ignored);
    }
    if (end.ok()) MACAW_RETURN_IF_ERROR(replacing);
    return end;
  }

  // Says, after the run, how much space the client states take, or that they are dropped.
  absl::Status LookAfterStates() const {
    if (!stateful_) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(const std::string room, RoomOfStates(config_, folder_->path));
    if (room.empty()) return absl::OkStatus();
    if (config_.node.state.keep) {
      Say("states", absl::StrCat(room, "; --set state.keep=false drops them when a run is over"));
      return absl::OkStatus();
    }
    MACAW_RETURN_IF_ERROR(DropStates(config_, folder_->path));
    Say("states", absl::StrCat(room, " dropped (state.keep = false)"));
    return absl::OkStatus();
  }

  const Config& config() const { return config_; }
  const EvaluableRows& evaluable() const { return evaluable_; }
  const std::string& folder() const { return folder_->path; }

 private:
  absl::Status ComposeNew() {
    std::string script_values;
    if (!config_.node.model_script.empty()) {
      MACAW_ASSIGN_OR_RETURN(script_values, DescribeScript(config_));
    }
    MACAW_RETURN_IF_ERROR(CheckNamesData(config_));
    MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                           catalogue_.OpenDataset(config_.node.data, config_.node.partition));
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, ResolveWith(*dataset));
    const bool own_values = !script_values.empty() && config_.node.model_init.empty();
    std::optional<FlatVector> start;  // none: the script's own values
    if (!own_values) {
      MACAW_ASSIGN_OR_RETURN(start, InitialWeights(config_, spec));
    }
    MACAW_RETURN_IF_ERROR(CheckState(spec, Start::kNew));
    // What the server refuses, before a folder is made or another run's is replaced.
    MACAW_RETURN_IF_ERROR(
        server::CheckPlan(config_.run, config_.node.server, spec.layout, catalogue_.algorithms()));
    if (start.has_value()) MACAW_RETURN_IF_ERROR(CheckStart(spec, *std::move(start)));
    if (!options_.model_step.empty()) return ModelStep(spec, *dataset, script_values);
    if (options_.estimate) return Estimate(spec, *dataset, script_values);
    if (options_.check) return absl::OkStatus();
    const std::string out = options_.out.empty() ? config_.node.server.out : options_.out;
    MACAW_ASSIGN_OR_RETURN(folder_,
                           MakeRunFolder(out, config_.run.name, options_.force, InputsOf(config_)));
    Say("run", folder_->path);
    if (own_values) {
      const std::filesystem::path file =
          std::filesystem::path(folder_->path) / "model-init.safetensors";
      MACAW_RETURN_IF_ERROR(MarkAsRun(folder_->path));
      MACAW_RETURN_IF_ERROR(AtomicWriteFile(file.string(), script_values));
      config_.node.model_init = std::filesystem::absolute(file).lexically_normal().string();
      if (!IsUtf8(config_.node.model_init)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the run's folder ", config_.node.model_init,
                         " is not UTF-8, as its config.toml must be: name another --out"));
      }
    }
    return absl::OkStatus();
  }

  // `new_stop`: the stop rule may be another one, whose metric must have values.
  absl::Status ComposeResumed(bool new_stop) {
    MACAW_ASSIGN_OR_RETURN(const Config before,
                           ReadConfig(document_, {}, catalogue_, Idle::kLeaveOut));
    MACAW_ASSIGN_OR_RETURN(const std::string kept, CheckGoesOn(config_, before, options_.resume));
    if (!kept.empty()) Say("note", kept);
    MACAW_RETURN_IF_ERROR(CheckForSimulation(config_.run));
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config_));
    MACAW_RETURN_IF_ERROR(CheckBackend(config_, spec, catalogue_.algorithms()));
    MACAW_RETURN_IF_ERROR(CheckWorkers(config_));
    if (new_stop) {
      MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                             catalogue_.OpenDataset(config_.node.data, config_.node.partition));
      MACAW_RETURN_IF_ERROR(ChooseStopMetric(config_, spec, *dataset, catalogue_.algorithms()));
    }
    MACAW_RETURN_IF_ERROR(
        server::CheckPlan(config_.run, config_.node.server, spec.layout, catalogue_.algorithms()));
    const bool begins_again = !server::HasCheckpoint(options_.resume);  // if the server agrees
    MACAW_RETURN_IF_ERROR(CheckState(spec, begins_again ? Start::kNew : Start::kResumed));
    MACAW_RETURN_IF_ERROR(CheckStatesKept(options_.resume));
    if (options_.check) return absl::OkStatus();
    MACAW_ASSIGN_OR_RETURN(folder_, OpenRunFolder(options_.resume));
    const bool goes_on = config_.node.server.keeps_commits() && HasJournal(folder_->path);
    Say("resume", absl::StrCat(folder_->path, !begins_again ? ""
                                              : goes_on ? ": it has no checkpoint yet, so the run "
                                                          "goes on from its journal where it can"
                                                        : ": it has no checkpoint yet, so the run "
                                                          "begins again from round 1"));
    for (const std::string& note : ScheduleNotes(config_.run)) Say("note", note);
    for (const std::string& note : PrivacyNotesOf(config_, spec, catalogue_.algorithms()))
      Say("note", note);
    for (const std::string& note : NotesOnTheEnd(config_)) Say("note", note);
    return absl::OkStatus();
  }

  // Returns an error unless a rule with several models can make them of this one.
  absl::Status CheckStart(const models::ModelSpec& spec, FlatVector start) const {
    MACAW_ASSIGN_OR_RETURN(const algorithms::Description rule,
                           catalogue_.algorithms().RuleOf(config_.run));
    if (!rule.has_several_models) return absl::OkStatus();
    return rule.server(algorithms::SetupOf(config_.run, spec.layout), std::move(start)).status();
  }

  absl::Status Estimate(const models::ModelSpec& spec, const data::Dataset& dataset,
                        const std::string& script_values) const {
    const auto elapsed = [this] { return ToSeconds(SteadyClock().Now() - began_); };
    MACAW_ASSIGN_OR_RETURN(const CostEstimate estimate,
                           EstimateCost({.config = config_,
                                         .spec = spec,
                                         .dataset = dataset,
                                         .script_values = script_values,
                                         .stateful = stateful_,
                                         .opened_in = elapsed()},
                                        catalogue_));
    output_.Event(EstimateJson(estimate, elapsed()));
    output_.Estimate(EstimateText(estimate, elapsed()));
    return absl::OkStatus();
  }

  // `script_values`: the scripted module's own tensors (DescribeScript), or empty.
  absl::Status ModelStep(const models::ModelSpec& spec, const data::Dataset& dataset,
                         const std::string& script_values) const {
    if (script_values.empty() || !config_.node.model_init.empty()) {
      MACAW_ASSIGN_OR_RETURN(const FlatVector start, InitialWeights(config_, spec));
      return WriteModelStep(config_, spec, start, dataset, options_.model_step);
    }
    const std::string values = options_.model_step + ".start";
    MACAW_RETURN_IF_ERROR(AtomicWriteFile(values, script_values));
    const absl::StatusOr<FlatVector> start = ReadModel(values, spec.layout);
    std::error_code ignored;
    std::filesystem::remove(values, ignored);
    MACAW_RETURN_IF_ERROR(start.status());
    return WriteModelStep(config_, spec, *start, dataset, options_.model_step);
  }

  absl::StatusOr<models::ModelSpec> ResolveWith(const data::Dataset& dataset) {
    const data::DatasetInfo& info = dataset.info();
    MACAW_RETURN_IF_ERROR(Resolve(config_, dataset, catalogue_));
    MACAW_ASSIGN_OR_RETURN(models::ModelSpec spec, SpecOf(config_));
    MACAW_RETURN_IF_ERROR(CheckTokens(config_, spec, dataset));
    MACAW_RETURN_IF_ERROR(ChooseStopMetric(config_, spec, dataset, catalogue_.algorithms()));
    evaluable_ = EvaluableRowsOf(dataset);
    Say("data", DataLine(info));
    if (info.feature_type != data::FeatureType::kI32)
      Say("normalise", NormaliseText(config_.run.transform));
    MACAW_RETURN_IF_ERROR(CheckBackend(config_, spec, catalogue_.algorithms()));
    MACAW_RETURN_IF_ERROR(CheckWorkers(config_));
    if (options_.replay.empty()) MACAW_RETURN_IF_ERROR(CheckForSimulation(config_.run));
    for (const std::string& note : info.notes) Say("note", note);
    Say("model", ModelLine(config_, spec));
    Say("rounds", RoundsLine(config_));
    for (const std::string& note : NotesOf(config_, spec, dataset, catalogue_.algorithms()))
      Say("note", note);
    for (const std::string& note : NotesOnTheEnd(config_)) Say("note", note);
    return spec;
  }

  absl::Status CheckState(const models::ModelSpec& spec, Start start) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<algorithms::NamedLayout> state,
                           StateItemsOf(config_, spec, catalogue_.algorithms()));
    stateful_ = !state.empty();
    if (!stateful_) return absl::OkStatus();
    MACAW_RETURN_IF_ERROR(CheckStateStore(config_, start));
    // Checks the store before a folder is made and workers wait for it in vain. A Redis of the
    // run's own is started later.
    return config_.node.state.url == "spawn" ? absl::OkStatus()
                                             : state::CheckReachable(StoreOptionsOf(config_, ""));
  }

  // Writes the configuration for the server and the one for the workers.
  absl::Status WriteFiles(const std::string& config, const std::string& node) {
    std::error_code ignored;
    config_.node.server.out =
        std::filesystem::absolute(folder_->path, ignored).lexically_normal().string();
    MACAW_RETURN_IF_ERROR(
        AtomicWriteFile(node, absl::StrCat(kNodeFileHeading, "\n", NodeToml(config_.node))));
    return AtomicWriteFile(config, absl::StrCat("# What `macaw simulate` ran, defaults included.\n",
                                                EffectiveToml(config_)));
  }

  void Say(absl::string_view what, absl::string_view text) const { output_.Say(what, text); }

  const SimulateOptions& options_;
  const Document& document_;
  const sdk::Catalogue& catalogue_;
  Output& output_;
  Config config_;
  const TimePoint began_ = SteadyClock().Now();
  EvaluableRows evaluable_;  // of a new run
  bool stateful_ = false;
  std::optional<HeldFolder> folder_;
};

// The exit code for an error of a run.
int CodeOf(const absl::Status& status) {
  if (absl::IsCancelled(status)) return kExitInterrupted;
  return training::IsMissingBackend(status) ? kExitMissingBackend : ExitCodeOf(status);
}

// How one run went.
struct Ran {
  int code = kExitOk;
  std::string go_on;  // the folder to resume, if the run can be resumed
};

// Composes and runs once. Tells all of it; the result is in the folder of the run.
Ran RunOnce(const SimulateOptions& options, const Document& document,
            const sdk::Catalogue& catalogue, Output& output) {
  Run run(options, document, catalogue, output);
  if (const absl::Status status = run.Compose({}); !status.ok()) {
    output.Error(status, CodeOf(status));
    return {.code = CodeOf(status)};
  }
  if (options.check || options.estimate || !options.model_step.empty()) return {};
  const absl::StatusOr<SupervisedEnd> end = run.Go();
  if (!end.ok()) {
    output.Error(end.status(), ExitCodeOf(end.status()));
    // A run that was refused, or whose error would only repeat, is not resumed. One that an error
    // has ended goes on from a checkpoint alone, also with a journal: its log says that it ended.
    const bool refused =
        absl::IsFailedPrecondition(end.status()) || absl::IsInvalidArgument(end.status());
    const bool can_go_on =
        !refused && options.replay.empty() && server::HasCheckpoint(run.folder());
    return {.code = ExitCodeOf(end.status()), .go_on = can_go_on ? run.folder() : ""};
  }
  if (*end != SupervisedEnd::kFinished) {
    return {.code = kExitInterrupted,
            .go_on = options.replay.empty() && CanGoOn(run.folder()) ? run.folder() : ""};
  }
  const absl::StatusOr<RunResult> result = ReadResult(run.folder());
  const absl::Status ended = result.ok() ? run.LookAfterStates() : result.status();
  if (!ended.ok()) {
    output.Error(ended, kExitFailed);
    return {.code = kExitFailed};
  }
  if (options.result) output.Result(*result);
  return {};
}

}  // namespace

absl::StatusOr<CheckedRun> CheckBeforeRun(const Document& document, const sdk::Catalogue& catalogue,
                                          const std::vector<Override>& overrides, Idle idle,
                                          Output& output) {
  SimulateOptions options;
  options.check = true;
  Run run(options, document, catalogue, output);
  MACAW_RETURN_IF_ERROR(run.Compose(overrides, idle));
  CheckedRun checked;
  checked.config = run.config();
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(checked.config));
  MACAW_ASSIGN_OR_RETURN(checked.columns, ColumnsOf(checked.config, spec, catalogue.algorithms()));
  checked.rows = run.evaluable();
  return checked;
}

int Simulate(const SimulateOptions& options) {
  const std::unique_ptr<Output> output = OutputFor(options.json, {.quiet = options.quiet});
  const Ran ran = [&]() -> Ran {
    const auto failed = [&](const absl::Status& status) -> Ran {
      output->Error(status, CodeOf(status));
      return {.code = CodeOf(status)};
    };
    const absl::StatusOr<Document> document =
        OpenDocument(options.resume.empty() ? options.config : options.resume + "/config.toml");
    if (!document.ok()) return failed(document.status());
    const absl::StatusOr<std::vector<Override>> overrides = OverridesOf(options, *document);
    if (!overrides.ok()) return failed(overrides.status());
    const absl::StatusOr<sdk::Catalogue> catalogue = LoadCatalogue(*document, *overrides);
    if (!catalogue.ok()) return failed(catalogue.status());
    return RunOnce(options, *document, *catalogue, *output);
  }();
  // The caller's folder may be gone after it.
  const std::string go_on = options.result ? ran.go_on : "";
  output->End(ran.code, go_on, absl::StrCat("macaw simulate --resume ", ForShell(go_on)));
  return ran.code;
}

}  // namespace macaw::cli
