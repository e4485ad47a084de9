#include "cli/simulate/simulate.h"

#include <memory>
#include <string>

#include "cli/commands/checks.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/limits.h"
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

}  // namespace

void AddSimulate(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("simulate", "Train a model over simulated clients");
  auto options = std::make_shared<SimulateOptions>();
  auto help_config = std::make_shared<bool>(false);
  CLI::Option* config =
      command->add_option("CONFIG", options->config, "The run's configuration (TOML)");
  command->add_option("--set", options->set, "Change a key: section.key=value (as often as needed)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  CLI::Option* out = command->add_option(
      "--out", options->out, "The run's folder (default: run.out, or runs/<name>, -2, -3, ...)");
  CLI::Option* resume =
      command->add_option("--resume", options->resume, "Go on with the run in this folder")
          ->excludes(config)
          ->excludes(out);
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
      ->check(AboveZero())
      ->needs(repeat);
  command
      ->add_option("--state-reset", options->state_reset,
                   "With --resume: this client gives its state up and starts again")
      ->type_name("CLIENT")
      ->allow_extra_args(false)
      ->needs(resume);
  command->add_flag("--force", options->force, "Replace a run that is in the folder already")
      ->excludes(resume);
  command->add_flag("--tcp", options->tcp,
                    "TCP loopback between server and workers, not a Unix socket");
  command->add_flag("--trace", options->trace,
                    "Also write which rows each batch had: trace/ in the run's folder");
  command->add_flag("--check", options->check,
                    "Check the configuration, the data and the back ends, and end without a run");
  CLI::Option* estimate =
      command
          ->add_flag("--estimate", options->estimate,
                     "Say what the run will cost (steps, bytes, memory, time, epsilon), from its "
                     "plan and from a trial of some seconds, and end without a run")
          ->excludes(resume)
          ->excludes(repeat);
  command
      ->add_option("--model-step", options->model_step,
                   "Write what the first model makes of two small batches (losses, gradients, one "
                   "step each) to this safetensors file, and end without a run")
      ->type_name("FILE")
      ->excludes(resume)
      ->excludes(repeat)
      ->excludes(estimate);
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
      ->excludes(repeat)
      ->excludes(estimate);
  command->add_flag("--help-config", *help_config, "List every key of a configuration, and end");
  command->footer(
      "Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 5 a back end is missing, "
      "130 interrupted (Ctrl-C; resumable).");
  command->final_callback([=, &run] {
    if (*help_config) {
      run = [] { return PrintConfigHelp(); };
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

}  // namespace macaw::cli
