#include "server/engine/timed_round.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/glob.h"
#include "plan/local_steps.h"
#include "plan/real_arrivals.h"
#include "server/engine/round_policy.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"
#include "virtual_time/closing.h"

namespace macaw::server {
namespace {

// `asked`: of the turns that a round begins.
virtual_time::ClosingRules ClosingRulesOf(const RunPlan& run, size_t asked) {
  const DevicesConfig& config = run.devices;
  virtual_time::ClosingRules rules{.deadline = config.deadline,
                                   .needed = NeededOf(config.quorum, asked),
                                   .drops_below = config.drops_below};
  if (run.cohort.over_selection > 1) rules.keep = run.cohort.size;
  if (config.enough > 0)
    rules.keep = rules.keep > 0 ? std::min(rules.keep, config.enough) : config.enough;
  return rules;
}

// The seconds of a turn without the turn's own factors, which nobody knows before it.
double PromisedSeconds(const virtual_time::Device& device, double passed,
                       const virtual_time::Traffic& traffic) {
  return passed / device.samples_per_s + traffic.down / device.down.mean +
         traffic.up / device.up.mean;
}

// When the clients of a round may begin.
struct Beginning {
  Round base;        // from whose model they train
  double model = 0;  // when it is there
  double free = 0;   // when the clients of the round before have done their work
};

Beginning BeginningOf(const RunPlan& run, Round round, const virtual_time::ClockState& clock) {
  if (!run.asynchronous.overlapped())
    return {.base = Round(round.value - 1), .model = clock.now, .free = clock.now};
  return {.base = Round(round.value > 1 ? round.value - 2 : 0),
          .model = clock.before,
          .free = clock.worked};
}

// When a round begins that may do so at `moment`: where a table says who is there, once a client
// is. Nobody for kLongestWait: then, without clients.
double BeginsAt(const scheduler::CohortSampler& sampler, const scheduler::Moment& moment) {
  return std::min(sampler.NextThere(moment).value_or(moment.seconds),
                  moment.seconds + kLongestWait);
}

// A round whose clients are drawn together.
TimedRound DrawnTogether(const RunPlan& run, const virtual_time::Devices& devices,
                         const RowsOfTurn& rule, const scheduler::CohortSampler& sampler,
                         Round round, const virtual_time::ClockState& clock) {
  Beginning beginning = BeginningOf(run, round, clock);
  ClientWork work(run, rule);
  const auto passed_in = [&](const scheduler::CohortEntry& entry) {
    return work.Passed(round, entry);
  };
  scheduler::Moment moment(round, std::max(beginning.model, beginning.free));
  if (LearnsFromRounds(run.cohort)) {
    moment.seconds_of = [&](const scheduler::CohortEntry& entry) {
      return PromisedSeconds(devices.Of(entry.client), passed_in(entry), clock.traffic);
    };
  }
  if (const double there = BeginsAt(sampler, moment); there > moment.seconds)
    beginning.model = moment.seconds = there;
  const std::vector<scheduler::CohortEntry> asked = AskedIn(run, sampler, moment);
  TimedRound timed;
  std::vector<double> seconds;  // since the moment
  for (const scheduler::CohortEntry& entry : asked) {
    const virtual_time::TurnTime turn =
        devices.TurnOf(round, entry.client, passed_in(entry), clock.traffic);
    const double began = std::max(beginning.model, moment.seconds - turn.download);
    timed.begun.push_back(
        {.client = entry.client, .base = beginning.base, .began = began, .time = turn});
    seconds.push_back((began - moment.seconds) + turn.whole());
  }
  const virtual_time::Closing closing = virtual_time::CloseRound(
      seconds, ClosingRulesOf(run, asked.size()),
      [&](uint32_t place) { return virtual_time::TieOf(run.devices, round, asked[place].client); });
  // A round that overlaps with the one before does not end before it.
  timed.time = {.end = clock,
                .seconds = std::max(moment.seconds - clock.now + closing.seconds, 0.0),
                .late = closing.late,
                .not_needed = closing.not_needed};
  timed.time.end.now = std::max(moment.seconds + closing.seconds, clock.now);
  for (const uint32_t place : closing.kept)
    timed.counted.push_back({.entry = asked[place], .base = beginning.base});
  if (!run.asynchronous.overlapped()) return timed;
  // That a round is dropped is known at its deadline, and its clients have worked until then.
  double worked = moment.seconds + (closing.kept.empty() ? closing.seconds : 0);
  for (const uint32_t place : closing.kept) {
    const BegunTurn& turn = timed.begun[place];
    worked = std::max(worked, turn.began + turn.time.download + turn.time.work);
  }
  timed.time.end.worked = worked;
  timed.time.end.before = clock.now;
  timed.time.asynchronous = true;
  timed.time.bases = {Round(round.value - 1)};
  return timed;
}

TimedRound NextArrivals(const RunPlan& run, const virtual_time::Devices& devices,
                        const RowsOfTurn& rule, const scheduler::CohortSampler& sampler,
                        Round round, const virtual_time::ClockState& clock) {
  ClientWork work(run, rule);
  const auto passed = [&](const scheduler::CohortEntry& entry, Round base) {
    return work.Passed(Round(base.value + 1), entry);
  };
  Arrived arrived = ArrivalsOf(run, devices, sampler, passed, round, clock);
  const uint32_t most = run.asynchronous.max_staleness;
  std::set<Round> bases;
  for (const virtual_time::ClockState::Training& one : arrived.clock.training) {
    if (most == 0 || round.value - one.base.value <= most) bases.insert(one.base);
  }
  return {.counted = std::move(arrived.arrivals),
          .begun = std::move(arrived.begun),
          .time = {.end = std::move(arrived.clock),
                   .seconds = arrived.seconds,
                   .late = arrived.too_stale,
                   .asynchronous = true,
                   .bases = {bases.begin(), bases.end()}}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<scheduler::CohortSampler>> SamplerOf(
    const RunPlan& run, std::span<const uint32_t> rows, const virtual_time::Presence* presence,
    const scheduler::Feedback* feedback) {
  CohortConfig cohort = run.cohort;
  if (DevicesArrive(run)) {  // at most as many as there are places
    const auto can = static_cast<uint64_t>(rows.size() - std::ranges::count(rows, 0U));
    cohort.size = std::min(std::max(run.asynchronous.concurrency, cohort.size), can);
  } else if (run.asynchronous.by_arrival()) {
    cohort.size = run.asynchronous.refill;
  }
  return run.devices.on() ? scheduler::MakeCandidates(cohort, rows, presence, feedback)
                          : scheduler::MakeSampler(cohort, rows, feedback);
}

virtual_time::Traffic FirstTraffic(const RunPlan& run, const ParameterLayout& model) {
  const auto bytes = static_cast<double>(model.bytes());
  const std::vector<std::string> frozen = run.model.FrozenGlobs();
  if (frozen.empty()) return {.down = bytes, .up = bytes};
  std::vector<LayoutEntry> trained = model.entries();
  std::erase_if(trained, [&](const LayoutEntry& entry) { return MatchesAny(frozen, entry.name); });
  const auto sent = ParameterLayout::Make(std::move(trained), model.dtype());
  return {.down = bytes, .up = sent.ok() ? static_cast<double>((*sent)->bytes()) : bytes};
}

std::vector<scheduler::CohortEntry> AskedIn(const RunPlan& run,
                                            const scheduler::CohortSampler& sampler,
                                            const scheduler::Moment& moment) {
  std::vector<scheduler::CohortEntry> asked = sampler.Sample(moment).entries;
  if (run.cohort.straggler_policy == "drop") {
    std::erase_if(asked, [&](const scheduler::CohortEntry& entry) {
      return training::IsStraggler(run.cohort, moment.round, entry.client);
    });
  }
  return asked;
}

LocalConfig ClientWork::In(Round round, const scheduler::CohortEntry& entry) {
  if (round_ != round) {
    round_ = round;
    local_ = training::RoundLocal(run_, round);
  }
  return training::WorkOf(run_.cohort, local_, round, entry.client, entry.load, rule_.joins());
}

uint64_t ClientWork::Steps(Round round, const scheduler::CohortEntry& entry) {
  return StepsOf(In(round, entry), entry.load, rule_.joins());
}

double ClientWork::Passed(Round round, const scheduler::CohortEntry& entry) {
  const LocalTurn turn = {
      .round = round, .local = In(round, entry), .rows = entry.load, .joins = rule_.joins()};
  return rule_ ? rule_(turn) : static_cast<double>(RowsPassed(turn));
}

TimedRound TimeRound(const RunPlan& run, const virtual_time::Devices& devices,
                     const RowsOfTurn& rule, const scheduler::CohortSampler& sampler, Round round,
                     const virtual_time::ClockState& clock) {
  return run.asynchronous.by_arrival() ? NextArrivals(run, devices, rule, sampler, round, clock)
                                       : DrawnTogether(run, devices, rule, sampler, round, clock);
}

}  // namespace macaw::server
