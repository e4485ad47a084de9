#include "cli/log/table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "core/one_line.h"
#include "server/log/fields.h"

namespace macaw::cli {
namespace {

namespace log = server::log;

constexpr size_t kDigits = 12;  // digits of a digest: enough to compare two by eye

struct Cells {
  std::string who;
  std::optional<uint64_t> clients;
  std::string why;
};

std::string Short(const Digest& digest) { return digest.Hex().substr(0, kDigits); }

std::string Count(uint64_t count, const char* one) {
  return absl::StrCat(count, " ", one, count == 1 ? "" : "s");
}

std::string Line(const std::string& time, const std::string& place, const std::string& what,
                 const std::string& who, const std::string& clients, const std::string& why) {
  std::string line =
      absl::StrFormat("%12s %8s  %-12s  %-14s %8s  %s", time, place, what, who, clients, why);
  // A text that a node sent may contain line breaks, and what a terminal would obey.
  line = OneLine(absl::StrReplaceAll(line, {{"\n", " | "}, {"\r", ""}}));
  return absl::StrCat(line.substr(0, line.find_last_not_of(' ') + 1), "\n");
}

Cells Of(const log::RunOpened& run) {
  std::string why =
      absl::StrCat("session ", run.epoch, ", ",
                   absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(run.wall_ns),
                                    absl::UTCTimeZone()));
  if (run.completed.value > 0) absl::StrAppend(&why, ", goes on after round ", run.completed.value);
  if (!run.replays.IsZero()) absl::StrAppend(&why, ", repeats run ", Short(run.replays));
  if (!run.reset_states.empty()) {
    absl::StrAppend(&why, ", states given up: ",
                    absl::StrJoin(run.reset_states, ", ", [](std::string* out, ClientId client) {
                      absl::StrAppend(out, client.value);
                    }));
  }
  return {.why = why};
}

Cells Of(const log::NodeJoined& node) {
  Cells cells{.who = node.name, .clients = 0, .why = Count(node.slots, "slot")};
  for (const log::Holding& holding : node.holdings) *cells.clients += holding.clients;
  return cells;
}
Cells Of(const log::NodeRefused& node) { return {.who = node.name, .why = node.why}; }
Cells Of(const log::NodeLost& node) { return {.who = node.name, .why = node.why}; }
Cells Of(const log::NodeDeclined& node) {
  return {.who = node.name, .why = node.why.empty() ? "works again" : node.why};
}
Cells Of(const log::Died& died) {
  return {.who = absl::StrCat("client ", died.client.value),
          .why = absl::StrCat("its worker died while it was trained, time ", died.deaths)};
}
Cells Of(const log::RoundOpened& round) {
  return {
      .clients = round.cohort.size(),
      .why = absl::StrCat("broadcast ", Short(round.broadcast), ", ", round.broadcast_bytes, " B")};
}
Cells Of(const log::Planned& plan) { return {.why = plan.why}; }
Cells Of(const log::Leased& leased) { return {.clients = leased.attempts.size()}; }
Cells Of(const log::Accepted& part) {
  std::string why = absl::StrFormat("%.3f s on its slots", part.seconds);
  if (!part.staleness.empty())
    absl::StrAppend(&why, ", ", Count(std::ranges::max(part.staleness), "round"), " old");
  if (!part.sums.IsZero())
    absl::StrAppend(&why, ", sums ", Short(part.sums), ", ", part.sums_bytes, " B");
  return {.clients = part.included.size(), .why = std::move(why)};
}
Cells Of(const log::TurnedDown& part) {
  return {.why = absl::StrCat(part.stale ? "too late: " : "wrong: ", part.why)};
}
Cells Of(const log::Requeued& back) { return {.clients = back.attempts.size(), .why = back.why}; }
Cells Of(const log::Waiting& waiting) {
  return {.clients = waiting.present,
          .why = absl::StrCat("too few are present, a round asks ", waiting.needed)};
}
Cells Of(const log::Extended& extended) {
  return {.clients = extended.counted,
          .why = absl::StrCat("below its quorum of ", Count(extended.needed, "client"),
                              " at its deadline; waits for ", extended.missing)};
}
Cells Of(const log::RoundLost& lost) {
  return {.why = absl::StrCat(lost.dropped ? "dropped: " : "", lost.why)};
}
Cells Of(const log::Closed& closed) {
  std::string why;
  const auto add = [&](const std::string& text) {
    absl::StrAppend(&why, why.empty() ? "" : ", ", text);
  };
  if (closed.left_out > 0) add(absl::StrCat(closed.left_out, " left out"));
  if (closed.requeued > 0) add(absl::StrCat(closed.requeued, " requeued"));
  if (closed.last) add(absl::StrFormat("%.3f s", closed.seconds));
  if (!closed.model.IsZero()) add(absl::StrCat("model ", Short(closed.model)));
  return {.clients = closed.counted, .why = why};
}
Cells Of(const log::GaveUp& gave_up) {
  return {.clients = gave_up.given_up.size(), .why = "by the server"};
}
Cells Of(const log::Operated& operated) {
  std::string why = absl::StrCat(log::NameOf(operated.action), " by ", operated.by);
  if (!operated.why.empty()) absl::StrAppend(&why, ": ", operated.why);
  return {.who = operated.name, .why = why};
}
Cells Of(const log::EvaluationGaveUp& gave_up) {
  return {.clients = gave_up.given_up.size(),
          .why = absl::StrCat(gave_up.states ? "of the states: " : "", gave_up.why)};
}
Cells Of(const log::StatesLost& lost) {
  return {.who = lost.name,
          .clients = lost.clients.size() + lost.counted.size(),
          .why = absl::StrCat(lost.why, lost.all ? "; all begin anew after the round" : "")};
}
Cells Of(const log::Evaluated& evaluated) { return {.why = evaluated.stop}; }
Cells Of(const log::RunEnded& run) {
  std::string why = absl::StrCat(log::NameOf(run.how), " after ", Count(run.rounds, "round"));
  if (!run.why.empty()) absl::StrAppend(&why, ": ", run.why);
  if (!run.model.IsZero()) absl::StrAppend(&why, ", model ", Short(run.model));
  return {.why = why};
}
Cells Of(const log::Unknown& unknown) {
  return {.why = absl::StrCat("kind ", unknown.kind, ", which a later version of Macaw writes")};
}

}  // namespace

std::string LogTable::Head() { return Line("seconds", "round", "what", "who", "clients", "why"); }

std::string LogTable::NameOf(WorkerId node) const {
  const auto name = names_.find(node);
  return name == names_.end() ? absl::StrCat("node ", node.value) : name->second;
}

void LogTable::PassOver(const log::Record& record) {
  if (std::holds_alternative<log::RunOpened>(record)) names_.clear();
  if (const auto* node = std::get_if<log::NodeJoined>(&record)) names_[node->node] = node->name;
}

std::string LogTable::Lines(const log::Entry& entry, log::Standing standing) {
  PassOver(entry.record);
  const std::string time = absl::StrFormat("%.6f", static_cast<double>(entry.ns) / 1e9);
  const auto [round, phase] = log::PlaceOf(entry.record);
  const std::string place =
      round.value == 0 ? "" : absl::StrCat(round.value, ".", int{phase.value});
  return std::visit(
      [&]<typename T>(const T& record) {
        Cells cells = Of(record);
        if constexpr (requires { record.node; }) {
          if (cells.who.empty()) cells.who = NameOf(record.node);
        }
        const std::string undone =
            standing == log::Standing::kUndone ? " (undone by a later session)" : "";
        std::string what = "unknown";
        if constexpr (!std::is_same_v<T, log::Unknown>) what = log::KindOf<T>().name;
        cells.why += undone;
        std::string lines =
            Line(time, place, what, cells.who,
                 cells.clients.has_value() ? absl::StrCat(*cells.clients) : "", cells.why);
        if constexpr (requires { record.given_up; }) {
          for (const log::GivenUp& one : record.given_up) {
            lines +=
                Line(time, place, "given_up", absl::StrCat("client ", one.attempt.client.value), "",
                     absl::StrCat(log::NameOf(one.reason), ": ", log::TextOf(one), undone));
          }
        }
        return lines;
      },
      entry.record);
}

}  // namespace macaw::cli
