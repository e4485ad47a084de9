#include "server/timeline.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"

namespace macaw::server {
namespace {

constexpr uint64_t kTurnsPerStride = 50'000;  // some 6 MB
constexpr uint64_t kSessionsPerEpoch = 100'000;
constexpr const char* kEnd = "]\n";

// Microseconds with three digits after the point.
std::string Micros(Duration time) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  return absl::StrCat(ns / 1000, ".", absl::Dec(ns % 1000, absl::kZeroPad3));
}

// A span of time; `args` is the inside of an object.
std::string Span(absl::string_view name, uint64_t process, uint32_t thread, Duration start,
                 Duration length, absl::string_view args) {
  return absl::StrCat(R"({"name":")", name, R"(","ph":"X","pid":)", process, R"(,"tid":)", thread,
                      R"(,"ts":)", Micros(std::max(start, Duration::zero())), R"(,"dur":)",
                      Micros(std::max(length, Duration::zero())), R"(,"args":{)", args, "}}");
}

// Of a process or a thread.
std::string Name(absl::string_view what, uint64_t process, uint32_t thread,
                 const std::string& name) {
  std::string quoted;
  for (const char c : name) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return absl::StrCat(R"({"name":")", what, R"(_name","ph":"M","pid":)", process, R"(,"tid":)",
                      thread, R"(,"args":{"name":")", quoted, R"("}})");
}

// How much of an older session's file to keep: whole lines, without the end of the list.
absl::StatusOr<uint64_t> BytesToKeep(const std::string& path) {
  MACAW_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  return text.size() - (text.ends_with(kEnd) ? std::string_view(kEnd).size() : 0);
}

}  // namespace

absl::StatusOr<Timeline> Timeline::Open(const std::string& path, uint32_t epoch, bool resume) {
  uint64_t keep = 0;
  if (resume && FileExists(path)) {
    MACAW_ASSIGN_OR_RETURN(keep, BytesToKeep(path));
  }
  MACAW_ASSIGN_OR_RETURN(LineFile file, LineFile::Open(path, keep));
  Timeline timeline(std::move(file), epoch);
  if (keep == 0)
    MACAW_RETURN_IF_ERROR(timeline.file_.Append(absl::StrCat("[", Name("process", 0, 0, "server"))));
  return timeline;
}

// Sessions are counted anew when the server starts anew.
uint64_t Timeline::ProcessOf(WorkerId session) const {
  return epoch_ * kSessionsPerEpoch + session.value;
}

absl::Status Timeline::Append(const std::string& event) {
  return file_.Append(absl::StrCat(",", event));
}

absl::Status Timeline::AddWorker(WorkerId session, const std::string& name, uint32_t slots) {
  std::vector<std::string> names = {Name("process", ProcessOf(session), 0, name)};
  for (uint32_t slot = 0; slot < slots; ++slot)
    names.push_back(Name("thread", ProcessOf(session), slot, absl::StrCat("slot ", slot)));
  return Append(absl::StrJoin(names, "\n,"));
}

absl::Status Timeline::AddPhase(const PhaseReport& report, TimePoint origin, TimePoint closed) {
  if (report.round.value % stride_ != 0) return absl::OkStatus();
  const std::string where =
      absl::StrCat(R"("round":)", report.round.value, R"(,"phase":)", report.phase.value);
  const PhaseTimes& times = report.times;
  const auto server = [&](absl::string_view name, TimePoint start, TimePoint end) {
    return Span(name, 0, 0, start - origin, end - start, where);
  };
  std::vector<std::string> events = {
      Span(absl::StrCat("round ", report.round.value), 0, 0, times.opened - origin,
           closed - times.opened,
           absl::StrCat(where, R"(,"clients":)", report.cohort, R"(,"slots":)",
                        report.slots, R"(,"requeued":)", report.requeued)),
      server("prepare", times.opened, times.ready),
      server("train", times.ready, times.gathered),
      server("apply", times.gathered, closed)};
  const auto micros = [](double seconds) { return static_cast<int64_t>(seconds * 1e6); };
  for (const Turn& turn : report.turns) {
    events.push_back(Span(
        absl::StrCat("client ", turn.client.value), ProcessOf(turn.worker), turn.slot,
        turn.began - origin,
        FromSeconds(turn.state_seconds + turn.load_seconds + turn.train_seconds),
        absl::StrCat(where, R"(,"steps":)", turn.steps, R"(,"state_us":)",
                     micros(turn.state_seconds), R"(,"load_us":)", micros(turn.load_seconds))));
  }
  turns_ += report.turns.size();
  if (turns_ >= kTurnsPerStride) {
    turns_ = 0;
    stride_ *= 2;
  }
  return Append(absl::StrJoin(events, "\n,"));
}

absl::Status Timeline::Close() { return file_.Append("]"); }

}  // namespace macaw::server
