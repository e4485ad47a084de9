#include "server/engine/arrivals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace macaw::server {
namespace {

using virtual_time::ClockState;

constexpr double kNever = std::numeric_limits<double>::infinity();

class Fleet {
 public:
  Fleet(const RunPlan& run, const virtual_time::Devices& devices,
        const scheduler::CohortSampler& groups, const PassedRows& passed, Round round,
        const ClockState& before)
      : run_(run), devices_(devices), groups_(groups), passed_(passed), newest_(round.value - 1) {
    result_.clock = before;
    for (const ClockState::Training& one : before.training) busy_.push_back(one.client);
    std::ranges::sort(busy_);
  }

  Arrived Run() {
    const uint64_t wanted = run_.cohort.size;
    while (result_.arrivals.size() < wanted) {
      const double there = Refill();
      std::vector<ClockState::Training>& training = result_.clock.training;
      if (training.empty()) {
        if (!WaitFor(there)) break;
        continue;
      }
      if (there < training.front().arrives) {
        result_.clock.now = there;
        continue;
      }
      const ClockState::Training next = training.front();
      training.erase(training.begin());
      result_.clock.now = std::max(result_.clock.now, next.arrives);
      Take(next);
    }
    std::ranges::sort(result_.arrivals, {},
                      [](const Arrival& arrival) { return arrival.entry.client; });
    return std::move(result_);
  }

 private:
  void Take(const ClockState::Training& next) {
    const uint32_t staleness = newest_.value - next.base.value;
    const uint32_t most = run_.asynchronous.max_staleness;
    if (most > 0 && staleness > most) {
      ++result_.too_stale;
      busy_.erase(std::ranges::lower_bound(busy_, next.client));
      return;
    }
    result_.arrivals.push_back(
        {.entry = {.client = next.client, .load = next.rows}, .base = next.base});
  }

  // Clients of the next group; 0: there are no places for one.
  uint64_t NextGroup() const {
    const ClockState& clock = result_.clock;
    const uint64_t places = std::max(run_.asynchronous.concurrency, run_.cohort.size);
    const uint64_t group = run_.asynchronous.refill, free = places - clock.training.size();
    if (free >= group) return group;
    // What is left of the places that were never taken.
    return std::min(free, places - std::min(clock.begun, places));
  }

  // Begins groups while places are free for one. Returns when a client comes that can begin in one;
  // infinity: none will, or nobody says who comes when.
  double Refill() {
    ClockState& clock = result_.clock;
    while (const uint64_t most = NextGroup()) {
      const Round number(static_cast<uint32_t>(++clock.groups));
      scheduler::Moment moment(number, clock.now);
      moment.step = Round(newest_.value + 1);
      moment.pauses = pauses_;
      moment.busy = busy_;
      moment.most = most;
      const scheduler::Cohort drawn = groups_.Sample(moment);
      if (drawn.entries.empty()) return NextThere(moment);
      for (const scheduler::CohortEntry& entry : drawn.entries) Begin(entry, number);
    }
    return kNever;
  }

  double NextThere(const scheduler::Moment& moment) {
    const std::optional<double> next = groups_.NextThere(moment);
    knows_ = next.has_value();
    // Later than now, at which nobody was drawn.
    return std::max(next.value_or(kNever), std::nextafter(moment.seconds, kNever));
  }

  // Nobody trains. False: the longest wait is over, and nobody can begin.
  bool WaitFor(double there) {
    double& now = result_.clock.now;
    const double left = kLongestWait - waited_;
    const double next = knows_ ? there : now + kNobodyPause;
    if (left <= 0) return false;
    const double pause = std::min(next - now, left);
    waited_ += pause;
    ++pauses_;
    now = pause < left ? next : now + pause;
    return true;
  }

  void Begin(const scheduler::CohortEntry& entry, Round group) {
    ClockState& clock = result_.clock;
    const virtual_time::TurnTime turn =
        devices_.TurnOf(group, entry.client, passed_(entry, newest_), clock.traffic);
    result_.begun.push_back(
        {.client = entry.client, .base = newest_, .began = clock.now, .time = turn});
    const ClockState::Training begun = {.arrives = clock.now + turn.whole(),
                                        .client = entry.client,
                                        .rows = entry.load,
                                        .base = newest_,
                                        .number = clock.begun++};
    const auto place = std::ranges::upper_bound(
        clock.training, std::tuple(begun.arrives, begun.number), {},
        [](const ClockState::Training& one) { return std::tuple(one.arrives, one.number); });
    clock.training.insert(place, begun);
    busy_.insert(std::ranges::lower_bound(busy_, entry.client), entry.client);
  }

  const RunPlan& run_;
  const virtual_time::Devices& devices_;
  const scheduler::CohortSampler& groups_;
  const PassedRows& passed_;
  const Round newest_;  // the round whose model is the newest
  double waited_ = 0;   // with nobody at work
  uint32_t pauses_ = 0;
  bool knows_ = false;  // a table says who comes when
  // The clients that cannot begin, since they train or wait in the buffer; ascending.
  std::vector<ClientId> busy_;
  Arrived result_;
};

}  // namespace

Arrived ArrivalsOf(const RunPlan& run, const virtual_time::Devices& devices,
                   const scheduler::CohortSampler& groups, const PassedRows& passed, Round round,
                   const ClockState& before) {
  Arrived arrived = Fleet(run, devices, groups, passed, round, before).Run();
  arrived.seconds = arrived.clock.now - before.now;
  return arrived;
}

}  // namespace macaw::server
