#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/config/drawable.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "cli/config/writer.h"
#include "cli/process/exit.h"
#include "cli/simulate/selection.h"
#include "core/named_file.h"
#include "core/shell.h"
#include "core/status.h"
#include "data/dataset.h"
#include "server/engine/round_policy.h"
#include "server/selection.h"

namespace macaw::cli {
namespace {

// Writes the file of a server that has no data: what `source` and its data say, without them.
struct PlanCommand {
  std::string source;
  std::vector<std::string> set;
  std::string out;
  bool force = false;  // overwrite `out` if it exists
};

// A plan may be made on data of the same shape as the fleet's. If their names are others than
// cohort.eligible asks for, the totals are those of all of this data's clients.
absl::StatusOr<Drawable> DrawableHere(const RunPlan& run, const data::Dataset& dataset) {
  const uint64_t clients = dataset.info().clients;
  MACAW_ASSIGN_OR_RETURN(const Drawable drawable, DrawableOf(run, dataset));
  if (run.cohort.eligible.empty() ||
      (drawable.clients > 0 && CheckDrawable(run, drawable, clients).ok())) {
    return drawable;
  }
  std::cerr << "note  cohort.eligible and cohort.min_rows leave " << drawable.clients << " of the "
            << clients << " clients of this data: run.train_clients, run.train_examples and "
            << "run.train_tokens are written as if cohort.eligible left no client out. Once the "
            << "clients have registered, the server says which numbers belong there" << std::endl;
  RunPlan everybody = run;
  everybody.cohort.eligible.clear();
  return DrawableOf(everybody, dataset);
}

// A device may lie, and the server cannot look at its rows.
void NoteOnTheMetric(const server::StopRule& stop) {
  if (!stop.active() || !server::IsMovedByOneClient(stop.metric)) return;
  std::cerr << "note  run.stop.metric " << stop.metric
            << " is a mean of what clients say, and one that lies moves it as far as it likes: "
               "where you do not trust every device, take a median over clients (such as "
               "clients_test_loss_p50) or an accuracy"
            << std::endl;
}

absl::Status Write(const PlanCommand& command) {
  std::error_code ignored;
  if (!command.force && std::filesystem::is_regular_file(command.out, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat(command.out, " exists already; --force replaces it"));
  }
  MACAW_ASSIGN_OR_RETURN(const std::vector<Override> overrides, ParseOverrides(command.set));
  MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(command.source));
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, overrides));
  MACAW_ASSIGN_OR_RETURN(Config config, ReadConfig(document, overrides, catalogue));
  if (config.node.partition.train_together) {
    return absl::InvalidArgumentError(absl::StrCat(
        "algorithm \"", config.run.algorithm.name,
        "\" trains on all clients' rows in one place: it is for simulations, and devices keep "
        "their rows"));
  }
  MACAW_RETURN_IF_ERROR(CheckForFleet(config.run));
  MACAW_RETURN_IF_ERROR(
      server::CheckLiveSteps(config.run, config.node.server.round, /*stateful=*/false));
  if (!config.node.model_script.empty() || !config.node.model_init.empty()) {
    return absl::UnimplementedError(
        "model.torchscript and model.init name files of the server's own: write them into the "
        "server's file by hand");
  }
  MACAW_RETURN_IF_ERROR(CheckNamesData(config));
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  for (const std::string& note : dataset->info().notes) std::cerr << "note  " << note << std::endl;
  MACAW_ASSIGN_OR_RETURN(const Drawable drawable, DrawableHere(config.run, *dataset));
  MACAW_RETURN_IF_ERROR(Resolve(config, dataset->info(), drawable, catalogue));
  MACAW_RETURN_IF_ERROR(server::CheckRounds(config.run.cohort, config.node.server.round));
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(config));
  MACAW_RETURN_IF_ERROR(ChooseStopMetric(config, spec, *dataset, catalogue.algorithms()));
  NoteOnTheMetric(config.node.server.stop);
  return WriteNamedFile(command.out, absl::StrCat("# The plan of ", command.source,
                                                  " for a server without data (`macaw plan`).\n",
                                                  ServerToml(config)));
}

int WritePlan(const PlanCommand& command) {
  const absl::Status status = Write(command);
  if (!status.ok()) return Report(status);
  std::cout << "macaw-server --config " << ForShell(command.out)
            << " --run-dir DIR --listen HOST:PORT "
            << "--authority FOLDER" << std::endl;
  return kExitOk;
}

}  // namespace

void AddPlan(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("plan", "Write what a server without data needs to run a configuration");
  auto options = std::make_shared<PlanCommand>();
  command->add_option("CONFIG", options->source, "A configuration that can be simulated")
      ->required();
  command->add_option("--set", options->set, "Change a key: section.key=value")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--out,-o", options->out, "The file to write")->required();
  command->add_flag("--force", options->force, "Replace the file if it exists");
  command->final_callback([=, &run] { run = [options] { return WritePlan(*options); }; });
}

}  // namespace macaw::cli
