#include "cli/results/compare.h"

#include <iostream>

#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "core/named_file.h"
#include "core/status.h"
#include "sdk/catalogue.h"

namespace macaw::cli {
namespace {

// Prints a table of runs: what differs between them, and their metrics.
struct CompareCommand {
  std::vector<std::string> runs;     // folders, or NAME-repeat.json (cli/results/run_paths.h)
  std::vector<std::string> metrics;  // empty: the usual ones
  std::string select, paired;        // CompareChoice
  std::string csv;                   // a file to write; "-": standard output, and no table
  bool json = false;                 // TableJson
};

absl::Status Show(const CompareCommand& command) {
  MACAW_ASSIGN_OR_RETURN(RunsRead read, ReadRuns(command.runs));
  MACAW_ASSIGN_OR_RETURN(
      ResultTable table,
      Compare(read.runs, command.metrics, sdk::Catalogue::Builtins().algorithms(),
              {.select = command.select, .paired = command.paired}));
  if (command.json || command.csv == "-") {
    for (const std::string& note : read.left_out) std::cerr << "note: " << note << "\n";
    std::cout << (command.json ? TableJson(table) + "\n" : TableCsv(table));
    return absl::OkStatus();
  }
  for (std::string& note : read.left_out) table.notes.push_back(std::move(note));
  std::cout << TableText(table);
  return command.csv.empty() ? absl::OkStatus() : WriteNamedFile(command.csv, TableCsv(table));
}

int CompareRuns(const CompareCommand& command) { return Report(Show(command)); }

}  // namespace

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

}  // namespace macaw::cli
