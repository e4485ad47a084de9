#include "cli/report/report.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/results/run_paths.h"
#include "core/named_file.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// Writes one HTML page about runs (cli/report/report.h).
struct ReportCommand {
  std::vector<std::string> runs;  // folders of runs, sweeps and repeats, or NAME-repeat.json
  std::string out;                // a file, or "-" for standard output
};

absl::Status Write(const ReportCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const std::string data, ReportData(command.runs));
  for (const std::string& left_out : UnreadableRuns(command.runs))
    std::cerr << "note: " << left_out << "\n";
  const std::string page = ReportPage(data);
  if (command.out == "-") {
    std::cout << page;
    return absl::OkStatus();
  }
  MACAW_RETURN_IF_ERROR(WriteNamedFile(command.out, page));
  std::cout << absl::StrCat("wrote ", command.out, " (", (page.size() + 512) / 1024,
                            " kB); it opens in any browser, without a network\n");
  return absl::OkStatus();
}

int WriteReport(const ReportCommand& command) { return Report(Write(command)); }

}  // namespace

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

}  // namespace macaw::cli
