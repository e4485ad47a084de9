#include "cli/timeline/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/files.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kLastRounds = 3;  // are drawn where no rounds are named

// Adds one event of the file to `timeline`. In the file a phase comes before its clients' turns.
void Take(const Json& event, Timeline& timeline) {
  const std::string name = event.value("name", "");
  const auto process = event.value("pid", uint64_t{0});
  const auto thread = event.value("tid", uint32_t{0});
  const Json args = event.value("args", Json::object());
  if (event.value("ph", "") == "M") {
    if (process != 0 && name == "process_name")
      timeline.workers[process] = {args.value("name", ""), args.value("slots", 0u)};
    return;
  }
  const double start = event.value("ts", 0.0), length = event.value("dur", 0.0);
  if (process == 0 && name.starts_with("round ")) {
    timeline.phases.push_back({.round = args.value("round", 0u),
                               .phase = args.value("phase", 0u),
                               .slots = args.value("slots", 0u),
                               .opened = start,
                               .closed = start + length,
                               .clients = args.value("clients", uint64_t{0}),
                               .busy = args.value("busy_us", 0.0),
                               .shown_every = args.value("shown_every", 1u),
                               .turns = {}});
    return;
  }
  if (timeline.phases.empty()) return;
  Timeline::Phase& phase = timeline.phases.back();
  if (process != 0) {
    phase.turns.push_back({.place = {process, thread},
                           .name = name,
                           .start = start,
                           .length = length,
                           .load = args.value("state_us", 0.0) + args.value("load_us", 0.0)});
  } else if (name == "train") {
    phase.ready = start;
    phase.gathered = start + length;
  }
}

}  // namespace

absl::StatusOr<Timeline> ReadTimeline(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Timeline timeline;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, ",")) absl::ConsumePrefix(&line, "[");
    const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) continue;
    try {
      Take(event, timeline);
    } catch (const Json::exception& error) {
      return absl::DataLossError(absl::StrCat(path, ": \"", line, "\": ", error.what()));
    }
  }
  if (timeline.phases.empty()) return absl::NotFoundError(absl::StrCat(path, " tells of no round"));
  return timeline;
}

bool Timeline::several_phases() const {
  return std::ranges::any_of(phases, [](const Phase& phase) { return phase.phase > 0; });
}

TimeSpent Spent(const Timeline& timeline) {
  TimeSpent spent;
  double slot_time = 0, training_slot_time = 0, busy = 0, gaps = 0;
  uint64_t gap_count = 0;
  for (const Timeline::Phase& phase : timeline.phases) {
    if (phase.turns.empty()) continue;
    double first = phase.gathered, last = phase.ready;
    std::map<Timeline::Place, std::vector<std::pair<double, double>>> slots;
    for (const Timeline::Turn& turn : phase.turns) {
      first = std::min(first, turn.start);
      last = std::max(last, turn.start + turn.length);
      slots[turn.place].emplace_back(turn.start, turn.start + turn.length);
    }
    for (auto& [place, turns] : slots) {
      std::ranges::sort(turns);
      if (phase.shown_every > 1) break;  // some turns were left out
      for (size_t i = 1; i < turns.size(); ++i, ++gap_count)
        gaps += turns[i].first - turns[i - 1].second;
    }
    ++spent.phases;
    spent.clients += phase.clients;
    busy += phase.busy;
    spent.whole += phase.closed - phase.opened;
    spent.prepare += phase.ready - phase.opened;
    spent.hand_out += first - phase.ready;
    spent.train += last - first;
    spent.commit += phase.gathered - last;
    spent.apply += phase.closed - phase.gathered;
    slot_time += phase.slots * (phase.closed - phase.opened);
    training_slot_time += phase.slots * (last - first);
  }
  if (spent.phases == 0) return spent;
  const auto phases = static_cast<double>(spent.phases);
  for (double* part :
       {&spent.whole, &spent.prepare, &spent.hand_out, &spent.train, &spent.commit, &spent.apply})
    *part /= phases;
  if (gap_count > 0) spent.gap = gaps / static_cast<double>(gap_count);
  if (slot_time > 0) spent.busy = busy / slot_time;
  if (training_slot_time > 0) spent.busy_training = busy / training_slot_time;
  return spent;
}

std::vector<WorkerTime> TimesOfWorkers(const Timeline& timeline) {
  std::map<uint64_t, WorkerTime> processes;
  for (const Timeline::Phase& phase : timeline.phases) {
    for (const Timeline::Turn& turn : phase.turns) {
      WorkerTime& time = processes[turn.place.first];
      time.clients += phase.shown_every;
      time.busy += turn.length * phase.shown_every;
      time.load += turn.load * phase.shown_every;
    }
  }
  std::vector<WorkerTime> times;
  for (const auto& [process, time] : processes) {
    const auto found = timeline.workers.find(process);
    const Timeline::Worker worker =
        found == timeline.workers.end() ? Timeline::Worker{.name = "?"} : found->second;
    auto same = std::ranges::find(times, worker.name, &WorkerTime::name);
    if (same == times.end()) same = times.insert(same, {.name = worker.name});
    same->slots = worker.slots;
    same->clients += time.clients;
    same->busy += time.busy;
    same->load += time.load;
  }
  return times;
}

absl::StatusOr<std::pair<uint32_t, uint32_t>> RoundRange(const std::string& rounds) {
  const std::vector<std::string> ends = absl::StrSplit(rounds, absl::MaxSplits(':', 1));
  uint32_t from = 0, to = 0;
  if (!absl::SimpleAtoi(ends.front(), &from) || !absl::SimpleAtoi(ends.back(), &to) || from > to) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rounds is \"", rounds, "\"; give a round (12) or a range (12:14)"));
  }
  return std::pair(from, to);
}

absl::StatusOr<std::pair<size_t, size_t>> PhasesOf(const Timeline& timeline,
                                                   const std::string& rounds) {
  const std::vector<Timeline::Phase>& phases = timeline.phases;
  if (rounds.empty()) {
    size_t first = phases.size() - 1;
    for (size_t more = kLastRounds; first > 0; --first) {
      if (phases[first - 1].round != phases[first].round && --more == 0) break;
    }
    return std::pair(first, phases.size() - 1);
  }
  MACAW_ASSIGN_OR_RETURN(const auto range, RoundRange(rounds));
  const auto [from, to] = range;
  const auto in = [from = from, to = to](const Timeline::Phase& phase) {
    return phase.round >= from && phase.round <= to;
  };
  const auto first = std::ranges::find_if(phases, in);
  if (first == phases.end()) {
    std::set<uint32_t> there;  // a round has a phase or more
    for (const Timeline::Phase& phase : phases) there.insert(phase.round);
    const uint32_t least = *there.begin(), most = *there.rbegin();
    return absl::NotFoundError(absl::StrCat(
        "--rounds ", rounds, ": the timeline has ", Counted(there.size(), "round"), ", from ",
        least, " to ", most, there.size() < most ? "; of a long run, only some rounds" : ""));
  }
  const auto last = std::find_if_not(first, phases.end(), in);
  return std::pair(static_cast<size_t>(first - phases.begin()),
                   static_cast<size_t>(last - phases.begin()) - 1);
}

}  // namespace macaw::cli
