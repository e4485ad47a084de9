#include "cli/timeline/virtual_trace.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

using Event = nlohmann::ordered_json;

constexpr int kServer = 0, kDevices = 1;  // processes of the trace

// Whole numbers, so that a part ends where the next one begins and lies within its turn.
int64_t Micros(double seconds) { return std::llround(seconds * 1e6); }

Event NameOf(const char* what, int process, uint32_t thread, const std::string& name) {
  return {
      {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

Event SpanOf(const std::string& name, int process, uint32_t thread, double from, double to,
             Event about) {
  return {{"name", name},
          {"ph", "X"},
          {"pid", process},
          {"tid", thread},
          {"ts", Micros(from)},
          {"dur", Micros(to) - Micros(from)},
          {"args", std::move(about)}};
}

// What of a turn happened until it ended.
void AddTurn(const VirtualTrace::Turn& turn, uint32_t place, std::vector<Event>& events) {
  const double whole = turn.began + turn.download + turn.work + turn.upload;
  Event about = {{"client", turn.client}, {"from_the_model_of_round", turn.base}};
  if (Micros(turn.ended) < Micros(whole)) about["would_have_taken_s"] = whole - turn.began;
  events.push_back(
      SpanOf(absl::StrCat("client ", turn.client), kDevices, place, turn.began, turn.ended, about));
  double from = turn.began;
  const std::pair<const char*, double> parts[] = {
      {"download", turn.download}, {"work", turn.work}, {"upload", turn.upload}};
  for (const auto& [name, seconds] : parts) {
    const double to = std::min(from + seconds, turn.ended);
    if (Micros(to) > Micros(from))
      events.push_back(SpanOf(name, kDevices, place, from, to, {{"client", turn.client}}));
    from = to;
  }
}

}  // namespace

std::vector<uint32_t> PlacesOf(const std::vector<VirtualTrace::Turn>& turns) {
  using Busy = std::pair<double, uint32_t>;  // until when, the place
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free;
  std::vector<uint32_t> places;
  for (const VirtualTrace::Turn& turn : turns) {
    for (; !busy.empty() && busy.top().first <= turn.began; busy.pop())
      free.push(busy.top().second);
    if (free.empty()) free.push(static_cast<uint32_t>(busy.size()));
    places.push_back(free.top());
    free.pop();
    busy.emplace(turn.ended, places.back());
  }
  return places;
}

std::string TraceText(const VirtualTrace& trace) {
  const std::vector<uint32_t> places = PlacesOf(trace.turns);
  const uint32_t rows = places.empty() ? 0 : 1 + *std::ranges::max_element(places);
  std::vector<Event> events = {NameOf("process_name", kServer, 0, "server"),
                               NameOf("process_name", kDevices, 0, "devices")};
  for (uint32_t place = 0; place < rows; ++place)
    events.push_back(NameOf("thread_name", kDevices, place, absl::StrCat("place ", place + 1)));
  for (const VirtualTrace::Step& step : trace.steps) {
    const std::string name = absl::StrCat("round ", step.round);
    events.push_back(
        SpanOf(name, kServer, 0, step.began, step.ended,
               {{"round", step.round}, {"clients", step.clients}, {"late", step.late}}));
    // A line through all rows.
    events.push_back({{"name", absl::StrCat("step ", step.round)},
                      {"ph", "i"},
                      {"s", "g"},
                      {"pid", kServer},
                      {"tid", 0},
                      {"ts", Micros(step.ended)}});
  }
  for (size_t i = 0; i < trace.turns.size(); ++i) AddTurn(trace.turns[i], places[i], events);
  std::string text;
  for (const Event& event : events)
    absl::StrAppend(&text, text.empty() ? "[" : "\n,", event.dump());
  return absl::StrCat(text, "\n]\n");
}

}  // namespace macaw::cli
