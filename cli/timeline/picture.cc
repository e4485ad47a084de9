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

// Draws the phases [first, last]: a row for the server, then one for each slot that trains in them.
class Drawing {
 public:
  Drawing(const Timeline& timeline, size_t first, size_t last)
      : timeline_(timeline), first_(first), last_(last) {
    begin_ = timeline.phases[first].opened;
    end_ = begin_ + 1;
    for (size_t i = first; i <= last; ++i) {
      const Timeline::Phase& phase = timeline.phases[i];
      begin_ = std::min(begin_, phase.opened);
      end_ = std::max(end_, phase.closed);
      for (const Timeline::Turn& turn : phase.turns) places_.push_back(turn.place);
    }
    std::ranges::sort(places_);
    places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
  }

  std::string Svg() const {
    std::string out = absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        kWidth, Bottom() + kFoot);
    absl::StrAppend(&out, Ticks(), RowNames());
    for (size_t i = first_; i <= last_; ++i) {
      absl::StrAppend(&out, ServerBars(timeline_.phases[i]), ClientBars(timeline_.phases[i]));
    }
    absl::StrAppend(&out, "</svg>\n");
    return out;
  }

 private:
  double X(double time) const {
    return kLeft + (time - begin_) / (end_ - begin_) * (kWidth - kLeft - kRight);
  }
  static double Row(size_t index) { return kHead + kRow * static_cast<double>(index); }
  double Bottom() const { return Row(places_.size() + 1); }

  std::string Ticks() const {
    std::string out;
    const double tick = TickOf(end_ - begin_);
    for (double time = 0; time <= end_ - begin_; time += tick) {
      absl::StrAppend(&out,
                      absl::StrFormat("<path d=\"M%.1f %.1fV%.1f\" stroke=\"#eeeeee\"/>\n",
                                      X(begin_ + time), kHead - 4, Bottom()),
                      Text(X(begin_ + time), Bottom() + 14, Time(time), "middle"));
    }
    return out;
  }

  std::string RowNames() const {
    std::string out = Text(kLeft - 8, Row(0) + 12, "server", "end");
    for (size_t i = 0; i < places_.size(); ++i) {
      const auto worker = timeline_.workers.find(places_[i].first);
      const std::string name = worker == timeline_.workers.end() ? "worker" : worker->second.name;
      absl::StrAppend(&out, Text(kLeft - 8, Row(i + 1) + 12,
                                 absl::StrCat(name, ", slot ", places_[i].second), "end"));
    }
    return out;
  }

  std::string ServerBars(const Timeline::Phase& phase) const {
    const std::string name = NameOf(phase);
    return absl::StrCat(Text(X(phase.opened), kHead - 10, name, "start"),
                        Bar(X(phase.opened), X(phase.ready), Row(0), kPrepare,
                            absl::StrCat(name, ", prepare: ", Time(phase.ready - phase.opened))),
                        Bar(X(phase.ready), X(phase.gathered), Row(0), kTrain,
                            absl::StrCat(name, ", train: ", Time(phase.gathered - phase.ready))),
                        Bar(X(phase.gathered), X(phase.closed), Row(0), kApply,
                            absl::StrCat(name, ", apply: ", Time(phase.closed - phase.gathered))));
  }

  std::string ClientBars(const Timeline::Phase& phase) const {
    std::string out;
    std::map<Timeline::Place, size_t> turns;
    for (const Timeline::Turn& turn : phase.turns) {
      const auto place = std::ranges::lower_bound(places_, turn.place) - places_.begin();
      absl::StrAppend(
          &out, Bar(X(turn.start), X(turn.start + turn.length), Row(static_cast<size_t>(place) + 1),
                    kClients[phase.round % 2][turns[turn.place]++ % 2],
                    absl::StrCat(turn.name, ", ", NameOf(phase), ": ", Time(turn.length))));
    }
    return out;
  }

  static std::string NameOf(const Timeline::Phase& phase) {
    return absl::StrCat("round ", phase.round);
  }

  const Timeline& timeline_;
  const size_t first_, last_;
  double begin_ = 0, end_ = 0;           // of the picture, in microseconds
  std::vector<Timeline::Place> places_;  // the slots that train in these phases, sorted
};

}  // namespace

std::string Picture(const Timeline& timeline, size_t first, size_t last) {
  return Drawing(timeline, first, last).Svg();
}

}  // namespace macaw::cli
