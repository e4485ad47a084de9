#include "cli/simulate/simulate.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/config/client_state.h"
#include "cli/config/notes.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/config/writer.h"
#include "cli/simulate/overrides.h"
#include "cli/simulate/result.h"
#include "cli/simulate/run.h"
#include "cli/simulate/run_folder.h"
#include "cli/simulate/script.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"
#include "data/dataset.h"

namespace macaw::cli {
namespace {

// A count with thousands marked: 44,426.
std::string Grouped(uint64_t number) {
  std::string text = absl::StrCat(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string DataLine(const data::DatasetInfo& info) {
  std::string line = absl::StrCat(info.name, ": ", Grouped(info.clients), " clients, ",
                                  Grouped(info.train_examples), " training and ",
                                  Grouped(info.test_examples), " central test examples");
  if (info.train_clients > 0 && info.train_clients < info.clients) {
    absl::StrAppend(&line, ", ", Grouped(info.clients - info.train_clients),
                    " clients never train (held out or without training rows)");
  }
  if (info.mean_classes_per_client > 0) {
    absl::StrAppendFormat(&line, ", %.2f of %d classes per client on average",
                          info.mean_classes_per_client, info.classes);
  }
  return line;
}

std::string ModelLine(const Config& config, const models::ModelSpec& spec) {
  return absl::StrCat(config.run.model.name, ": ", Grouped(spec.layout->count()),
                      " parameters, input [", absl::StrJoin(spec.input_shape, ", "), "], ",
                      spec.outputs, " outputs, ", config.task);
}

// One run, from its configuration to its result on disk. The order matters: everything that can be
// wrong with the configuration is found before a folder is made.
class Run {
 public:
  Run(const SimulateOptions& options, const sdk::Catalogue& catalogue)
      : options_(options), catalogue_(catalogue) {}

  // Later overrides (`extra`) win; `suffix` goes to the folder's name.
  absl::Status Compose(const std::vector<Override>& extra, const std::string& suffix) {
    const bool resume = !options_.resume.empty();
    const std::string file = resume ? options_.resume + "/config.toml" : options_.config;
    MACAW_ASSIGN_OR_RETURN(std::vector<Override> overrides, OverridesOf(options_, ""));
    MACAW_ASSIGN_OR_RETURN(const Config first, ReadConfig(file, overrides, catalogue_));
    MACAW_ASSIGN_OR_RETURN(overrides, OverridesOf(options_, first.data.source));
    if (resume) MACAW_RETURN_IF_ERROR(CheckResumable(overrides));
    overrides.insert(overrides.end(), extra.begin(), extra.end());
    MACAW_ASSIGN_OR_RETURN(config_, ReadConfig(file, overrides, catalogue_));
    return resume ? ComposeResumed(file) : ComposeNew(suffix);
  }

  absl::StatusOr<RunEnd> Go() {
    return RunInChildren(config_, {.folder = folder_->path,
                                   .resume = !options_.resume.empty(),
                                   .stateful = stateful_,
                                   .state_reset = options_.state_reset,
                                   .trace = options_.trace,
                                   .quiet = options_.quiet,
                                   .verbose = options_.verbose});
  }

  const Config& config() const { return config_; }
  const std::string& folder() const { return folder_->path; }
  bool has_folder() const { return folder_.has_value(); }

 private:
  absl::Status ComposeNew(const std::string& suffix) {
    std::string script_values;
    if (!config_.model_script.empty()) {
      MACAW_ASSIGN_OR_RETURN(script_values, DescribeScript(config_));
    }
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, ResolveWithData());
    const bool own_values = !script_values.empty() && config_.model_init.empty();
    if (!own_values) MACAW_RETURN_IF_ERROR(InitialWeights(config_, spec).status());
    MACAW_RETURN_IF_ERROR(CheckState(spec, Start::kNew));
    std::string out = options_.out.empty() ? config_.output.out : options_.out;
    if (!out.empty()) absl::StrAppend(&out, suffix);
    MACAW_ASSIGN_OR_RETURN(
        folder_, MakeRunFolder(out, absl::StrCat(config_.run.name, suffix), options_.force));
    Say("run", folder_->path);
    if (own_values) {
      const std::filesystem::path file =
          std::filesystem::path(folder_->path) / "model-init.safetensors";
      MACAW_RETURN_IF_ERROR(AtomicWriteFile(file.string(), script_values));
      config_.model_init = std::filesystem::absolute(file).lexically_normal().string();
    }
    return WriteConfig();
  }

  absl::Status ComposeResumed(const std::string& file) {
    MACAW_ASSIGN_OR_RETURN(const Config before, ReadConfig(file, {}, catalogue_));
    if (config_.run.rounds < before.run.rounds) {
      return absl::InvalidArgumentError(absl::StrCat("run.rounds was ", before.run.rounds,
                                                     "; a run that goes on may have more, not ",
                                                     config_.run.rounds));
    }
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config_));
    MACAW_RETURN_IF_ERROR(CheckState(spec, Start::kResumed));
    MACAW_ASSIGN_OR_RETURN(folder_, OpenRunFolder(options_.resume));
    Say("resume", folder_->path);
    return WriteConfig();
  }

  absl::StatusOr<models::ModelSpec> ResolveWithData() {
    MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                           catalogue_.OpenDataset(config_.data, config_.partition));
    const data::DatasetInfo& info = dataset->info();
    MACAW_RETURN_IF_ERROR(Resolve(config_, info, catalogue_));
    MACAW_ASSIGN_OR_RETURN(models::ModelSpec spec, SpecOf(config_));
    Say("data", DataLine(info));
    Say("model", ModelLine(config_, spec));
    Say("rounds",
        absl::StrCat(config_.run.rounds, " of ", config_.run.algorithm.name, ", ",
                     Grouped(config_.run.cohort.size), " clients each, on ",
                     config_.workers.processes,
                     config_.workers.processes == 1 ? " process with " : " processes with ",
                     Counted(SlotsPerProcess(config_.workers), "slot")));
    for (const std::string& note : NotesOf(config_, spec, *dataset, catalogue_.algorithms()))
      Say("note", note);
    return spec;
  }

  absl::Status CheckState(const models::ModelSpec& spec, Start start) {
    MACAW_ASSIGN_OR_RETURN(const std::vector<algorithms::NamedLayout> state,
                           StateItemsOf(config_, spec, catalogue_.algorithms()));
    stateful_ = !state.empty();
    if (!stateful_) return absl::OkStatus();
    MACAW_RETURN_IF_ERROR(CheckStateStore(config_, start));
    // Before a folder is made and workers wait for it in vain; one of the run's own comes later.
    return config_.state.url == "spawn" ? absl::OkStatus()
                                        : state::CheckReachable(StoreOptionsOf(config_, ""));
  }

  absl::Status WriteConfig() {
    std::error_code error;
    config_.output.out =
        std::filesystem::absolute(folder_->path, error).lexically_normal().string();
    return AtomicWriteFile(
        folder_->path + "/config.toml",
        absl::StrCat("# What `macaw simulate` ran, defaults included.\n", EffectiveToml(config_)));
  }

  void Say(absl::string_view what, absl::string_view text) const {
    if (!options_.quiet) std::cerr << absl::StrFormat("%-10s %s\n", what, text) << std::flush;
  }

  const SimulateOptions& options_;
  const sdk::Catalogue& catalogue_;
  Config config_;
  bool stateful_ = false;
  std::optional<RunFolder> folder_;
};

void PrintResumeCommand(const std::string& folder) {
  std::cerr << "go on with  macaw simulate --resume " << folder << std::endl;
}

bool HasCheckpoint(const std::string& folder) {
  std::error_code error;
  return !std::filesystem::is_empty(folder + "/checkpoints", error) && !error;
}

// Composes and runs once. The result is in the run's folder; `result` takes it over.
int RunOnce(const SimulateOptions& options, const sdk::Catalogue& catalogue,
            const std::vector<Override>& extra, const std::string& suffix,
            std::vector<RunResult>& results) {
  Run run(options, catalogue);
  if (const absl::Status status = run.Compose(extra, suffix); !status.ok()) {
    return Report(status);
  }
  const absl::StatusOr<RunEnd> end = run.Go();
  if (!end.ok()) {
    (void)Report(end.status());
    if (HasCheckpoint(run.folder())) PrintResumeCommand(run.folder());
    return kExitFailed;
  }
  if (*end != RunEnd::kFinished) {
    if (HasCheckpoint(run.folder())) PrintResumeCommand(run.folder());
    return kExitInterrupted;
  }
  absl::StatusOr<RunResult> result = ReadResult(run.folder());
  if (!result.ok()) {
    (void)Report(result.status());
    return kExitFailed;
  }
  result->seed = run.config().run.seed;
  std::cout << (options.quiet ? absl::StrCat(run.folder(), "\n") : ResultText(*result))
            << std::flush;
  results.push_back(*std::move(result));
  return kExitOk;
}

absl::StatusOr<sdk::Catalogue> CatalogueOf(const SimulateOptions& options) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<Override> overrides, OverridesOf(options, ""));
  return LoadCatalogue(options.resume.empty() ? options.config : options.resume + "/config.toml",
                       overrides);
}

int Repeat(const SimulateOptions& options, const sdk::Catalogue& catalogue) {
  const absl::StatusOr<std::vector<Override>> overrides = OverridesOf(options, "");
  const absl::StatusOr<Config> config =
      overrides.ok() ? ReadConfig(options.config, *overrides, catalogue) : overrides.status();
  if (!config.ok()) {
    return Report(config.status());
  }
  std::vector<RunResult> results;
  for (uint32_t i = 0; i < options.repeat; ++i) {
    const std::string seed = absl::StrCat(config->run.seed + i);
    const int code = RunOnce(options, catalogue, {{"run.seed", seed, "--repeat"}},
                             absl::StrCat("-seed", seed), results);
    if (code != kExitOk) return code;
  }
  const std::vector<Spread> spreads = SpreadOf(results);
  // runs/<name>-seed1, … stand beside runs/<name>-repeat.json.
  const std::string first = results[0].folder;
  const std::string file = absl::StrCat(first.substr(0, first.rfind("-seed")), "-repeat.json");
  if (const absl::Status status = AtomicWriteFile(file, SpreadJson(results, spreads));
      !status.ok()) {
    (void)Report(status);
    return kExitFailed;
  }
  std::cout << "\nmean ± standard deviation of " << results.size() << " runs (" << file << ")\n"
            << SpreadText(spreads) << std::flush;
  return kExitOk;
}

}  // namespace

int Simulate(const SimulateOptions& options) {
  const absl::StatusOr<sdk::Catalogue> catalogue = CatalogueOf(options);
  if (!catalogue.ok()) {
    return Report(catalogue.status());
  }
  if (options.repeat > 1) return Repeat(options, *catalogue);
  std::vector<RunResult> results;
  return RunOnce(options, *catalogue, {}, "", results);
}

}  // namespace macaw::cli
