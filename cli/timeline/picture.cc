#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/timeline/timeline.h"

namespace macaw::cli {
namespace {

constexpr double kWidth = 1200, kLeft = 130, kRight = 16, kHead = 30, kRow = 20, kBar = 15;
constexpr double kFoot = 34;
constexpr const char* kPrepare = "#c77d2e";
constexpr const char* kTrain = "#d5dde6";
constexpr const char* kApply = "#7b4fa3";
// Colours of clients: neighbours alternate between two, and each round uses another pair.
constexpr std::array<std::array<const char*, 2>, 2> kClients = {
    {{"#1f5fa8", "#5b93cf"}, {"#3f8f5b", "#7dbd92"}}};

std::string Safe(const std::string& words) {
  return absl::StrReplaceAll(words, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Text(double x, double y, const std::string& words, const char* anchor) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         Safe(words));
}

std::string Bar(double left, double right, double y, const char* colour, const std::string& title) {
  return absl::StrFormat(
      "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\"><title>%s</title>"
      "</rect>\n",
      left, y, std::max(right - left, 0.1), kBar, colour, Safe(title));
}

std::string Time(double micros) {
  if (micros < 1e3) return absl::StrFormat("%.4g µs", micros);
  return micros < 1e6 ? absl::StrFormat("%.4g ms", micros / 1e3)
                      : absl::StrFormat("%.4g s", micros / 1e6);
}

// The distance between ticks: 1, 2 or 5 times a power of ten, about ten of them in `span`.
double TickOf(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 10)));
  for (const double step : {1, 2, 5}) {
    if (span / (step * power) <= 12) return step * power;
  }
  return 10 * power;
}

}  // namespace

std::string Picture(const Timeline& timeline, size_t first, size_t last) {
  double begin = timeline.phases[first].opened, end = begin + 1;
  for (size_t i = first; i <= last; ++i) {
    begin = std::min(begin, timeline.phases[i].opened);
    end = std::max(end, timeline.phases[i].closed);
  }
  const auto x = [&](double time) {
    return kLeft + (time - begin) / (end - begin) * (kWidth - kLeft - kRight);
  };
  std::vector<Timeline::Place> places;  // those that train here
  for (size_t i = first; i <= last; ++i) {
    for (const Timeline::Turn& turn : timeline.phases[i].turns) places.push_back(turn.place);
  }
  std::ranges::sort(places);
  places.erase(std::ranges::unique(places).begin(), places.end());
  const auto row = [&](size_t index) { return kHead + kRow * static_cast<double>(index); };
  const double bottom = row(places.size() + 1);

  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, bottom + kFoot);
  const double tick = TickOf(end - begin);
  for (double time = 0; time <= end - begin; time += tick) {
    absl::StrAppend(&out,
                    absl::StrFormat("<path d=\"M%.1f %.1fV%.1f\" stroke=\"#eeeeee\"/>\n",
                                    x(begin + time), kHead - 4, bottom),
                    Text(x(begin + time), bottom + 14, Time(time), "middle"));
  }
  absl::StrAppend(&out, Text(kLeft - 8, row(0) + 12, "server", "end"));
  for (size_t i = 0; i < places.size(); ++i) {
    const auto worker = timeline.workers.find(places[i].first);
    absl::StrAppend(
        &out, Text(kLeft - 8, row(i + 1) + 12,
                   absl::StrCat(worker == timeline.workers.end() ? "worker" : worker->second.name,
                                ", slot ", places[i].second),
                   "end"));
  }
  for (size_t i = first; i <= last; ++i) {
    const Timeline::Phase& phase = timeline.phases[i];
    const std::string name = absl::StrCat("round ", phase.round);
    absl::StrAppend(&out, Text(x(phase.opened), kHead - 10, name, "start"),
                    Bar(x(phase.opened), x(phase.ready), row(0), kPrepare,
                        absl::StrCat(name, ", prepare: ", Time(phase.ready - phase.opened))),
                    Bar(x(phase.ready), x(phase.gathered), row(0), kTrain,
                        absl::StrCat(name, ", train: ", Time(phase.gathered - phase.ready))),
                    Bar(x(phase.gathered), x(phase.closed), row(0), kApply,
                        absl::StrCat(name, ", apply: ", Time(phase.closed - phase.gathered))));
    std::map<Timeline::Place, size_t> turns;
    for (const Timeline::Turn& turn : phase.turns) {
      const auto place = std::ranges::lower_bound(places, turn.place) - places.begin();
      absl::StrAppend(
          &out, Bar(x(turn.start), x(turn.start + turn.length), row(static_cast<size_t>(place) + 1),
                    kClients[phase.round % 2][turns[turn.place]++ % 2],
                    absl::StrCat(turn.name, ", ", name, ": ", Time(turn.length))));
    }
  }
  absl::StrAppend(&out, "</svg>\n");
  return out;
}

}  // namespace macaw::cli
