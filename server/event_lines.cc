#include "server/event_lines.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace macaw::server {
namespace {

int64_t Number(uint64_t number) { return static_cast<int64_t>(number); }

}  // namespace

std::string EventLines::NameOf(WorkerId node) const {
  const auto name = names_.find(node);
  return name == names_.end() ? absl::StrCat("node ", node.value) : name->second;
}

std::vector<Event> EventLines::Of(const log::Record& record) {
  return std::visit([this](const auto& kind) { return Lines(kind); }, record);
}

std::vector<Event> EventLines::Lines(const log::NodeJoined& joined) {
  names_[joined.node] = joined.name;
  return {{"worker_joined",
           {{"worker", joined.name},
            {"number", int64_t{joined.node.value}},
            {"slots", int64_t{joined.slots}}}}};
}

std::vector<Event> EventLines::Lines(const log::NodeRefused& refused) {
  return {{"worker_refused", {{"worker", refused.name}, {"why", refused.why}}}};
}

std::vector<Event> EventLines::Lines(const log::NodeLost& lost) {
  names_.erase(lost.node);
  return {{"worker_lost", {{"worker", lost.name}, {"why", lost.why}}}};
}

std::vector<Event> EventLines::Lines(const log::NodeDeclined& declined) {
  return {{declined.why.empty() ? "worker_accepts" : "worker_declines",
           {{"worker", declined.name}, {"why", declined.why}}}};
}

std::vector<Event> EventLines::Lines(const log::Died& died) {
  return {
      {"died_running", {{"client", Number(died.client.value)}, {"deaths", int64_t{died.deaths}}}}};
}

std::vector<Event> EventLines::Lines(const log::RoundOpened& opened) {
  given_up_.clear();
  if (opened.phase.value > 0) return {};
  before_.clear();
  left_out_ = 0;
  return {};
}

std::vector<Event> EventLines::Lines(const log::Planned& planned) {
  return {{"planned", {{"round", int64_t{planned.round.value}}, {"why", planned.why}}}};
}

std::vector<Event> EventLines::Lines(const log::Accepted& accepted) {
  std::ranges::copy(accepted.given_up, std::back_inserter(given_up_));
  return {{"part",
           {{"worker", NameOf(accepted.node)},
            {"round", int64_t{accepted.round.value}},
            {"clients", Number(accepted.included.size())},
            {"left_out", Number(accepted.given_up.size())},
            {"seconds", accepted.seconds}}}};
}

std::vector<Event> EventLines::Lines(const log::GaveUp& gave_up) {
  std::ranges::copy(gave_up.given_up, std::back_inserter(given_up_));
  return {};
}

std::vector<Event> EventLines::Lines(const log::TurnedDown& down) {
  return {
      {down.stale ? "part_stale" : "part_refused",
       {{"worker", NameOf(down.node)}, {"round", int64_t{down.round.value}}, {"why", down.why}}}};
}

std::vector<Event> EventLines::Lines(const log::Requeued& requeued) {
  return {{"requeued",
           {{"round", int64_t{requeued.round.value}},
            {"clients", Number(requeued.attempts.size())},
            {"why", requeued.why}}}};
}

std::vector<Event> EventLines::Lines(const log::Waiting& waiting) {
  return {{"waiting",
           {{"round", int64_t{waiting.round.value}},
            {"present", Number(waiting.present)},
            {"needed", Number(waiting.needed)}}}};
}

std::vector<Event> EventLines::Lines(const log::Extended& extended) {
  return {{"extended",
           {{"round", int64_t{extended.round.value}},
            {"counted", Number(extended.counted)},
            {"needed", Number(extended.needed)},
            {"missing", Number(extended.missing)}}}};
}

std::vector<Event> EventLines::Lines(const log::RoundLost& lost) {
  return {{"round_lost", {{"round", int64_t{lost.round.value}}, {"why", lost.why}}}};
}

std::vector<Event> EventLines::Lines(const log::Closed& closed) {
  std::ranges::sort(given_up_, {}, [](const log::GivenUp& g) { return g.attempt.client; });
  std::ranges::move(given_up_, std::back_inserter(before_));
  given_up_.clear();
  left_out_ += closed.left_out;
  if (!closed.last) return {};
  std::vector<Event> events = {{"round",
                                {{"round", int64_t{closed.round.value}},
                                 {"clients", Number(closed.counted)},
                                 {"left_out", Number(left_out_)},
                                 {"requeued", Number(closed.requeued)},
                                 {"seconds", closed.seconds}}}};
  for (const log::GivenUp& given_up : before_) {
    events.push_back({"left_out",
                      {{"round", int64_t{closed.round.value}},
                       {"client", Number(given_up.attempt.client.value)},
                       {"why", TextOf(given_up)}}});
  }
  return events;
}

std::vector<Event> EventLines::Lines(const log::Operated& operated) {
  Event event{log::NameOf(operated.action), {{"by", operated.by}, {"why", operated.why}}};
  if (!operated.name.empty()) event.fields.emplace_back("worker", operated.name);
  if (operated.round.value > 0) event.fields.emplace_back("round", int64_t{operated.round.value});
  return {event};
}

std::vector<Event> EventLines::Lines(const log::EvaluationGaveUp& gave_up) {
  return {{"evaluation_without",
           {{"round", int64_t{gave_up.round.value}},
            {"clients", Number(gave_up.given_up.size())},
            {"why", gave_up.why}}}};
}

std::vector<Event> EventLines::Lines(const log::StatesLost& lost) {
  Event event{"states_lost",
              {{"worker", lost.name},
               {"round", int64_t{lost.round.value}},
               {"clients", Number(lost.clients.size() + lost.counted.size())},
               {"why", lost.why}}};
  if (lost.all) event.fields.emplace_back("then", "all clients begin anew after the round");
  return {event};
}

std::vector<Event> EventLines::Lines(const log::RunEnded& ended) {
  return {{absl::StrCat("run_", log::NameOf(ended.how)),
           {{"rounds", int64_t{ended.rounds}}, {"why", ended.why}}}};
}

}  // namespace macaw::server
