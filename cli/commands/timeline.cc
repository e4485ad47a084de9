#include "cli/timeline/timeline.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/simulate/virtual_rounds.h"
#include "cli/timeline/virtual_trace.h"
#include "core/named_file.h"
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

constexpr size_t kLastRounds = 3;
constexpr uint32_t kFirstRounds = 5;  // of --virtual

void Part(absl::string_view name, double micros, absl::string_view what) {
  std::cout << absl::StrFormat("  %-10s %10.3f ms   %s\n", name, micros / 1e3, what);
}

// "12" or "12:14"
absl::StatusOr<std::pair<uint32_t, uint32_t>> RangeOf(const std::string& rounds) {
  const std::vector<std::string> ends = absl::StrSplit(rounds, absl::MaxSplits(':', 1));
  uint32_t from = 0, to = 0;
  if (!absl::SimpleAtoi(ends.front(), &from) || !absl::SimpleAtoi(ends.back(), &to) || from > to) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rounds is \"", rounds, "\"; give a round (12) or a range (12:14)"));
  }
  return std::pair(from, to);
}

// The first and last phase of the requested rounds.
absl::StatusOr<std::pair<size_t, size_t>> PhasesOf(const Timeline& timeline,
                                                   const std::string& rounds) {
  const size_t count = timeline.phases.size();
  if (rounds.empty()) return std::pair(count - std::min(count, kLastRounds), count - 1);
  MACAW_ASSIGN_OR_RETURN(const auto range, RangeOf(rounds));
  const auto [from, to] = range;
  const auto in = [from = from, to = to](const Timeline::Phase& phase) {
    return phase.round >= from && phase.round <= to;
  };
  const auto first = std::ranges::find_if(timeline.phases, in);
  if (first == timeline.phases.end()) {
    return absl::NotFoundError(absl::StrCat(
        "--rounds ", rounds, ": the timeline has ", count, " rounds, from ",
        timeline.phases.front().round, " to ", timeline.phases.back().round,
        count < timeline.phases.back().round ? "; of a long run, only some rounds" : ""));
  }
  const auto last = std::find_if_not(first, timeline.phases.end(), in);
  return std::pair(static_cast<size_t>(first - timeline.phases.begin()),
                   static_cast<size_t>(last - timeline.phases.begin()) - 1);
}

void PrintWorkers(const Timeline& timeline) {
  struct Work {
    size_t clients = 0;
    double busy = 0, load = 0;  // µs
  };
  std::map<uint64_t, Work> works;
  for (const Timeline::Phase& phase : timeline.phases) {
    for (const Timeline::Turn& turn : phase.turns) {
      Work& work = works[turn.place.first];
      work.clients += phase.shown_every;
      work.busy += turn.length * phase.shown_every;
      work.load += turn.load * phase.shown_every;
    }
  }
  std::cout << absl::StrFormat("%-20s %5s %9s %12s %12s\n", "worker", "slots", "clients",
                               "a client", "of it loading");
  for (const auto& [process, work] : works) {
    const auto found = timeline.workers.find(process);
    const Timeline::Worker worker =
        found == timeline.workers.end() ? Timeline::Worker{.name = "?"} : found->second;
    const double clients = 1e3 * static_cast<double>(work.clients);  // µs to ms
    std::cout << absl::StrFormat("%-20s %5d %9d %9.3f ms %10.3f ms\n", worker.name, worker.slots,
                                 work.clients, work.busy / clients, work.load / clients);
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
  std::cout << absl::StrFormat("\nwhere a round's time goes: %.1f clients, mean of %d rounds%s\n",
                               clients, spent.phases,
                               timeline.several_phases() ? ", phase by phase" : "");
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
    MACAW_ASSIGN_OR_RETURN(rounds, RangeOf(command.rounds));
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
