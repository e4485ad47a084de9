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

std::vector<Event> EventLines::OfClosed(const log::Closed& closed) {
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

std::vector<Event> EventLines::Of(const log::Record& record) {
  if (const auto* joined = std::get_if<log::NodeJoined>(&record)) {
    names_[joined->node] = joined->name;
    return {{"worker_joined",
             {{"worker", joined->name},
              {"number", int64_t{joined->node.value}},
              {"slots", int64_t{joined->slots}}}}};
  }
  if (const auto* refused = std::get_if<log::NodeRefused>(&record))
    return {{"worker_refused", {{"worker", refused->name}, {"why", refused->why}}}};
  if (const auto* lost = std::get_if<log::NodeLost>(&record)) {
    names_.erase(lost->node);
    return {{"worker_lost", {{"worker", lost->name}, {"why", lost->why}}}};
  }
  if (const auto* died = std::get_if<log::Died>(&record)) {
    return {{"died_running",
             {{"client", Number(died->client.value)}, {"deaths", int64_t{died->deaths}}}}};
  }
  if (const auto* opened = std::get_if<log::RoundOpened>(&record)) {
    given_up_.clear();
    if (opened->phase.value > 0) return {};
    before_.clear();
    left_out_ = 0;
    return {};
  }
  if (const auto* planned = std::get_if<log::Planned>(&record))
    return {{"planned", {{"round", int64_t{planned->round.value}}, {"why", planned->why}}}};
  if (const auto* accepted = std::get_if<log::Accepted>(&record)) {
    std::ranges::copy(accepted->given_up, std::back_inserter(given_up_));
    return {{"part",
             {{"worker", NameOf(accepted->node)},
              {"round", int64_t{accepted->round.value}},
              {"clients", Number(accepted->included.size())},
              {"left_out", Number(accepted->given_up.size())},
              {"seconds", accepted->seconds}}}};
  }
  if (const auto* gave_up = std::get_if<log::GaveUp>(&record)) {
    std::ranges::copy(gave_up->given_up, std::back_inserter(given_up_));
    return {};
  }
  if (const auto* down = std::get_if<log::TurnedDown>(&record)) {
    return {{down->stale ? "part_stale" : "part_refused",
             {{"worker", NameOf(down->node)},
              {"round", int64_t{down->round.value}},
              {"why", down->why}}}};
  }
  if (const auto* requeued = std::get_if<log::Requeued>(&record)) {
    return {{"requeued",
             {{"round", int64_t{requeued->round.value}},
              {"clients", Number(requeued->attempts.size())},
              {"why", requeued->why}}}};
  }
  if (const auto* lost = std::get_if<log::RoundLost>(&record))
    return {{"round_lost", {{"round", int64_t{lost->round.value}}, {"why", lost->why}}}};
  if (const auto* closed = std::get_if<log::Closed>(&record)) return OfClosed(*closed);
  if (const auto* ended = std::get_if<log::RunEnded>(&record)) {
    return {{absl::StrCat("run_", log::NameOf(ended->how)),
             {{"rounds", int64_t{ended->rounds}}, {"why", ended->why}}}};
  }
  return {};
}

}  // namespace macaw::server
