#include "cli/timeline/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::json;

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

}  // namespace macaw::cli
