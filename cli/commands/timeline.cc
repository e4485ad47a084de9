#include "cli/timeline/timeline.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/simulate/virtual_rounds.h"
#include "cli/timeline/virtual_trace.h"
#include "core/named_file.h"
#include "core/one_line.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// `macaw timeline RUN`: prints where the time of a run's rounds went, and draws some of them.
struct TimelineCommand {
  std::string run;
  std::string rounds;  // "12" or "12:14"; empty: the last three, of --virtual the first five
  std::string svg;     // the picture's file; empty: none
  std::string trace;   // --virtual: the trace's file; empty: none
};

constexpr uint32_t kFirstRounds = 5;  // of --virtual

void Part(absl::string_view name, double micros, absl::string_view what) {
  std::cout << absl::StrFormat("  %-10s %10.3f ms   %s\n", name, micros / 1e3, what);
}

void PrintWorkers(const Timeline& timeline) {
  std::cout << absl::StrFormat("%-20s %5s %9s %12s %12s\n", "worker", "slots", "clients",
                               "a client", "of it loading");
  for (const WorkerTime& time : TimesOfWorkers(timeline)) {
    const double clients = 1e3 * static_cast<double>(time.clients);  // µs to ms
    std::cout << absl::StrFormat("%-20s %5d %9d %9.3f ms %10.3f ms\n", OneLine(time.name),
                                 time.slots, time.clients, time.busy / clients,
                                 time.load / clients);
  }
}

absl::Status Show(const TimelineCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const Timeline timeline,
                         ReadTimeline(absl::StrCat(command.run, "/timeline.json")));
  MACAW_ASSIGN_OR_RETURN(const auto phases, PhasesOf(timeline, command.rounds));
  const TimeSpent spent = Spent(timeline);
  if (spent.phases == 0)
    return absl::NotFoundError(absl::StrCat(command.run, ": no client has been trained yet"));
  if (!command.svg.empty()) {
    MACAW_RETURN_IF_ERROR(
        WriteNamedFile(command.svg, Picture(timeline, phases.first, phases.second)));
  }
  PrintWorkers(timeline);
  const auto clients = static_cast<double>(spent.clients) / static_cast<double>(spent.phases);
  const bool several = timeline.several_phases();
  std::cout << absl::StrFormat("\nwhere a %s's time goes: %.1f clients, mean of %d %ss\n",
                               several ? "phase" : "round", clients, spent.phases,
                               several ? "phase" : "round");
  Part("prepare", spent.prepare, "the cohort, the broadcast");
  Part("hand out", spent.hand_out, "the plan, leases until the first client begins");
  Part("train", spent.train, "from the first client's beginning to the last one's end");
  Part("commit", spent.commit, "until the last part is in the sum");
  Part("apply", spent.apply, "the algorithm's step, and what is kept");
  Part("whole", spent.whole, "");
  std::cout << absl::StrFormat(
      "\nslots are busy %.1f %% of the time, %.1f %% while clients train; between two clients of a "
      "slot lie %.1f µs\n",
      100 * spent.busy, 100 * spent.busy_training, spent.gap);
  return absl::OkStatus();
}

// Writes the trace of --virtual.
absl::Status WriteVirtual(const TimelineCommand& command) {
  std::pair<uint32_t, uint32_t> rounds = {1, kFirstRounds};
  if (!command.rounds.empty()) {
    MACAW_ASSIGN_OR_RETURN(rounds, RoundRange(command.rounds));
  }
  MACAW_ASSIGN_OR_RETURN(const VirtualTrace trace,
                         TraceOfRun(command.run, Round(rounds.first), Round(rounds.second)));
  MACAW_RETURN_IF_ERROR(WriteNamedFile(command.trace, TraceText(trace)));
  const std::vector<uint32_t> places = PlacesOf(trace.turns);
  const VirtualTrace::Step &first = trace.steps.front(), &last = trace.steps.back();
  std::cout << absl::StrFormat(
      "rounds %d to %d took %.6g virtual seconds; %d turns in %d places are in %s, which opens in "
      "Perfetto (ui.perfetto.dev)\n",
      first.round, last.round, last.ended - first.began, trace.turns.size(),
      places.empty() ? 0 : 1 + *std::ranges::max_element(places), command.trace);
  return absl::OkStatus();
}

int ShowTimeline(const TimelineCommand& command) {
  if (!command.rounds.empty() && command.svg.empty() && command.trace.empty()) {
    return Report(absl::InvalidArgumentError(
        "--rounds are the rounds to draw: give --svg FILE or --virtual FILE, too"));
  }
  return Report(command.trace.empty() ? Show(command) : WriteVirtual(command));
}

}  // namespace

void AddTimeline(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("timeline", "Where the time of a run's rounds went");
  auto options = std::make_shared<TimelineCommand>();
  command->add_option("RUN", options->run, "The run's folder")->required();
  CLI::Option* svg =
      command->add_option("--svg", options->svg, "Also draw some rounds into this file");
  command
      ->add_option("--rounds", options->rounds,
                   "Rounds to draw (default: the last three; with --virtual the first five)")
      ->type_name("A[:B]");
  command
      ->add_option("--virtual", options->trace,
                   "Write the clients' turns in virtual time into this file, a trace as "
                   "timeline.json is (a run with [devices])")
      ->type_name("FILE")
      ->excludes(svg);
  command->footer(
      "timeline.json itself opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.");
  command->final_callback([=, &run] { run = [options] { return ShowTimeline(*options); }; });
}

}  // namespace macaw::cli
