#include "cli/sweep/sweep.h"

#include <iostream>
#include <memory>

#include "cli/commands/checks.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/limits.h"
#include "cli/sweep/sweep_file.h"

namespace macaw::cli {

void AddSweep(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "sweep", "Run many configurations with many seeds, side by side, and compare them");
  auto options = std::make_shared<SweepOptions>();
  auto help_file = std::make_shared<bool>(false);
  command->add_option("SWEEP", options->file,
                      "The sweep file (TOML): a base, keys with values, seeds");
  command->add_option("--out,-o", options->out, "The sweep's folder (default: sweeps/<name>)");
  command->add_option("--jobs,-j", options->jobs, "Runs at a time")->check(AboveZero());
  command->add_option("--cores", options->cores, "Cores of all runs together")->check(AboveZero());
  command->add_option("--memory", options->memory, "Gigabytes of all runs together")
      ->check(AboveZero());
  command->add_flag("--retry-failed", options->retry_failed, "Try again what has failed");
  command->add_flag("--dry-run", options->dry_run,
                    "Check every configuration, print the runs, and end");
  CLI::Option* quiet =
      command->add_flag("-q,--quiet", options->quiet, "No progress; print the table only");
  command
      ->add_flag("--json", options->json,
                 "For programs: print what happens as one JSON object a line, and nothing else")
      ->excludes(quiet);
  command->add_flag("--help-file", *help_file, "List every key of a sweep file, and end");
  command->footer(
      "The same command goes on with a sweep that was interrupted or killed, and with further "
      "seeds.\nA run that fails is a row of the table. Exit codes: 0 done, 1 failed, 2 bad usage or "
      "configuration, 5 a back end is missing, 130 interrupted.");
  command->require_subcommand(0, 1);

  CLI::App* show = command->add_subcommand("show", "The table of a sweep that goes on or is over");
  auto shown = std::make_shared<SweepShowOptions>();
  show->add_option("DIR", shown->folder, "The sweep's folder")->required();
  show->add_option("--metric", shown->metric, "Another metric than the sweep's");
  show->add_flag("--json", shown->json, "As one JSON object, with every run");

  command->final_callback([=, &run] {
    if (show->parsed()) {
      run = [shown] { return ShowSweep(*shown); };
      return;
    }
    if (*help_file) {
      run = [] {
        std::cout << SweepFileHelp();
        return kExitOk;
      };
      return;
    }
    if (options->file.empty()) throw CLI::RequiredError("SWEEP.toml, or show DIR,");
    run = [options] {
      const absl::Status files = EnsureOpenFiles();
      return files.ok() ? Sweep(*options) : Report(files);
    };
  });
}

}  // namespace macaw::cli
