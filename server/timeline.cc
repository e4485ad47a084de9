#include "server/timeline.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/status.h"

namespace macaw::server {
namespace {

constexpr uint64_t kEventsPerStride = 50'000;  // some 6 MB
constexpr uint64_t kSessionsPerEpoch = 100'000;
constexpr std::string_view kEnd = "]\n";

// Microseconds with three decimals.
std::string Micros(Duration time) {
  const auto ns = std::max<int64_t>(time.count(), 0);
  return absl::StrCat(ns / 1000, ".", absl::Dec(ns % 1000, absl::kZeroPad3));
}

// A span of time. `args`: the members of a JSON object, without braces.
std::string Span(absl::string_view name, uint64_t process, uint32_t thread, Duration start,
                 Duration length, absl::string_view args) {
  return absl::StrCat(R"({"name":")", name, R"(","ph":"X","pid":)", process, R"(,"tid":)", thread,
                      R"(,"ts":)", Micros(start), R"(,"dur":)", Micros(length), R"(,"args":{)",
                      args, "}}");
}

std::string Process(uint64_t process, const std::string& name, uint32_t slots) {
  const nlohmann::ordered_json event = {{"name", "process_name"},
                                        {"ph", "M"},
                                        {"pid", process},
                                        {"args", {{"name", name}, {"slots", slots}}}};
  return event.dump();
}

double NumberAfter(absl::string_view line, absl::string_view key) {
  const size_t at = line.find(key);
  return at == absl::string_view::npos ? 0 : std::atof(line.data() + at + key.size());
}

// The content of the file that earlier sessions have left.
struct Kept {
  uint64_t bytes = 0;  // size of the whole lines, without the end of the list
  uint64_t events = 0;
  Duration end{};  // of the last span
};
absl::StatusOr<Kept> Keep(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  if (text.ends_with(kEnd)) text.resize(text.size() - kEnd.size());
  Kept kept{.bytes = text.size()};
  double end = 0;  // µs
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    ++kept.events;
    end = std::max(end, NumberAfter(line, "\"ts\":") + NumberAfter(line, "\"dur\":"));
  }
  kept.end = FromSeconds(std::min(end * 1e-6, 1e8));
  return kept;
}

}  // namespace

absl::StatusOr<Timeline> Timeline::Open(const std::string& path, uint32_t epoch, bool resume) {
  Kept kept;
  if (resume && FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(kept, Keep(path));
  }
  MACAW_ASSIGN_OR_RETURN(LineFile file, LineFile::Open(path, kept.bytes));
  Timeline timeline(std::move(file), epoch);
  timeline.before_ = kept.end;
  timeline.Count(kept.events);
  if (kept.bytes == 0)
    MACAW_RETURN_IF_ERROR(timeline.file_.Append(absl::StrCat("[", Process(0, "server", 1))));
  return timeline;
}

// Worker numbers begin again at 1 when the server is restarted, so the epoch is part of the id.
uint64_t Timeline::ProcessOf(WorkerId session) const {
  return epoch_ * kSessionsPerEpoch + session.value;
}

void Timeline::Count(uint64_t events) {
  for (events_ += events; events_ >= kEventsPerStride; events_ -= kEventsPerStride) stride_ *= 2;
}

absl::Status Timeline::Append(const std::string& event) {
  return closed_ ? absl::OkStatus() : file_.Append(absl::StrCat(",", event));
}

absl::Status Timeline::AddWorker(WorkerId session, const std::string& name, uint32_t slots) {
  return Append(Process(ProcessOf(session), name, slots));
}

absl::Status Timeline::AddPhase(const PhaseReport& report, TimePoint origin, TimePoint closed) {
  if (closed_ || report.round.value % stride_ != 0) return absl::OkStatus();
  const std::string where =
      absl::StrCat(R"("round":)", report.round.value, R"(,"phase":)", report.phase.value);
  const PhaseTimes& times = report.times;
  const auto at = [&](TimePoint time) { return before_ + (time - origin); };
  const auto seconds = [](const Turn& turn) {
    return turn.state_seconds + turn.load_seconds + turn.train_seconds;
  };
  const auto micros = [](double s) { return static_cast<int64_t>(s * 1e6); };
  double busy = 0;
  for (const Turn& turn : report.turns) busy += seconds(turn);
  const size_t every = report.turns.size() / kEventsPerStride + 1;
  std::string lines = Span(
      absl::StrCat("round ", report.round.value), 0, 0, at(times.opened), closed - times.opened,
      absl::StrCat(where, R"(,"clients":)", report.cohort, R"(,"slots":)", report.slots,
                   R"(,"requeued":)", report.requeued, R"(,"busy_us":)", micros(busy),
                   R"(,"shown_every":)", every));
  const auto add = [&](absl::string_view name, TimePoint start, TimePoint end) {
    absl::StrAppend(&lines, "\n,", Span(name, 0, 0, at(start), end - start, where));
  };
  add("prepare", times.opened, times.ready);
  add("train", times.ready, times.gathered);
  add("apply", times.gathered, closed);
  uint64_t events = 4;
  for (size_t i = 0; i < report.turns.size(); i += every, ++events) {
    const Turn& turn = report.turns[i];
    absl::StrAppend(&lines, "\n,",
                    Span(absl::StrCat("client ", turn.client.value), ProcessOf(turn.worker),
                         turn.slot, at(turn.began), FromSeconds(seconds(turn)),
                         absl::StrCat(where, R"(,"steps":)", turn.steps, R"(,"state_us":)",
                                      micros(turn.state_seconds), R"(,"load_us":)",
                                      micros(turn.load_seconds))));
  }
  Count(events);
  return Append(lines);
}

absl::Status Timeline::Close() {
  if (closed_) return absl::OkStatus();
  closed_ = true;
  return file_.Append("]");
}

}  // namespace macaw::server
