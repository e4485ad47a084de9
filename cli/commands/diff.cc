#include "cli/diff/diff.h"

#include <cmath>
#include <iostream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/diff/trace.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// Says where two runs part. Exits as diff(1) does: 0 the same, 1 they differ, 2 it cannot say.
struct DiffCommand {
  std::string first, second;
  std::vector<std::string> rename;  // THEIRS=OURS
  double tolerance = 0;
  bool json = false;
};

absl::StatusOr<Renames> RenamesOf(const std::vector<std::string>& texts) {
  Renames renames;
  for (const std::string& text : texts) {
    const size_t sign = text.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == text.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rename ", text, ": give THEIRS=OURS, as in accuracy=test_accuracy"));
    }
    renames[text.substr(0, sign)] = text.substr(sign + 1);
  }
  return renames;
}

absl::StatusOr<int> ShowDifference(const DiffCommand& command) {
  if (!std::isfinite(command.tolerance) || command.tolerance < 0)
    return absl::InvalidArgumentError("--tolerance is a number from 0 on");
  MACAW_ASSIGN_OR_RETURN(const Renames renames, RenamesOf(command.rename));
  // Names of a run of Macaw stay: those of the other side get them.
  std::vector<Trace> traces;
  for (const std::string* const path : {&command.first, &command.second}) {
    const bool is_run = FileExists(*path + "/config.toml");
    MACAW_ASSIGN_OR_RETURN(Trace trace, ReadTrace(*path, is_run ? Renames() : renames));
    traces.push_back(std::move(trace));
  }
  MACAW_RETURN_IF_ERROR(CheckRenames(renames, traces[0], traces[1]));
  MACAW_ASSIGN_OR_RETURN(const DiffReport report,
                         Diff(traces[0], traces[1], {.tolerance = command.tolerance}));
  std::cout << (command.json ? DiffJson(report) + "\n" : DiffText(report));
  return report.same() ? kExitOk : kExitDiffers;
}

int DiffRuns(const DiffCommand& command) {
  LeaveOneForADifference();
  const absl::StatusOr<int> code = ShowDifference(command);
  if (code.ok()) return *code;
  (void)Report(code.status());
  return kExitUsage;
}

}  // namespace

void AddDiff(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "diff", "Where two runs part: the first round, client and tensor, and what differs before");
  auto options = std::make_shared<DiffCommand>();
  command
      ->add_option("FIRST", options->first,
                   "The folder of a run; or a trace of another system: FILE.csv or FILE.jsonl with "
                   "a column \"round\", or a folder with metrics.csv, metrics.jsonl or models "
                   "NAME-ROUND.safetensors")
      ->required();
  command->add_option("SECOND", options->second, "Likewise")->required();
  command->add_option("--tolerance", options->tolerance,
                      "Numbers may differ by this: |a - b| <= T max(1, |a|, |b|); 0: the bits");
  command
      ->add_option(
          "--rename", options->rename,
          "THEIRS=OURS: a column or tensor of a trace that has another name here; as often "
          "as needed")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "As one JSON object");
  command->footer(
      "Rounds are compared by rounds.log (digests of what each round sends, cohorts, sums), "
      "metrics.jsonl and clients.jsonl (run.client_records), and models where both have one of a "
      "round.\n"
      "Exit codes: 0 the same, 1 they differ, 2 bad usage or files that cannot be read.");
  command->final_callback([=, &run] { run = [options] { return DiffRuns(*options); }; });
}

}  // namespace macaw::cli
