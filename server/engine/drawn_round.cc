#include "server/engine/drawn_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "plan/real_arrivals.h"
#include "server/engine/timed_round.h"

namespace macaw::server {
namespace {

scheduler::CohortEntry EntryFor(const Draw& draw, ClientId client) {
  return {.client = client, .load = draw.drawable_rows().at(client.value)};
}

void InClientOrder(std::vector<Seat>& seats) {
  std::ranges::sort(seats, {}, [](const Seat& seat) { return seat.entry.client; });
}

// Of a client that began from a model that is so much older than the newest one.
absl::StatusOr<Seat> AgedSeat(const Draw& draw, ClientWork& work, const ClientStates& states,
                              Round round, ClientId client, uint32_t staleness) {
  if (client.value >= draw.drawable_rows().size() || staleness >= round.value) {
    return absl::DataLossError(absl::StrCat("round ", round.value, ": the log names client ",
                                            client.value, ", whose model is ", staleness,
                                            " rounds old, and that cannot be"));
  }
  const scheduler::CohortEntry entry = EntryFor(draw, client);
  const Round begun(round.value - staleness);
  MACAW_ASSIGN_OR_RETURN(Seat seat, draw.SeatOf(entry, work.In(begun, entry), states));
  seat.staleness = staleness;
  return seat;
}

// As the log says: those that counted, and those that were given up.
absl::StatusOr<DrawnRound> FollowStep(const EngineOptions& options, const Draw& draw,
                                      const ClientStates& states, Round round) {
  const auto decided = options.decisions.find({round, Phase(0)});
  if (decided == options.decisions.end() || !decided->second.step.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the log does not say who arrived for round ", round.value));
  }
  const log::RecordedStep& recorded = *decided->second.step;
  DrawnRound drawn{.seats = {},
                   .step = ArrivalStep{.arrivals = recorded.arrivals,
                                       .live = false,
                                       .grid = {.max_weight = recorded.max_weight,
                                                .total_weight = recorded.total_weight,
                                                .max_multiplicity = recorded.max_multiplicity,
                                                .total_multiplicity = recorded.total_multiplicity},
                                       .kept = recorded.kept,
                                       .keeps_leases = false}};
  ClientWork work(options.run, options.passes);
  const auto add = [&](ClientId client, uint32_t staleness) -> absl::Status {
    MACAW_ASSIGN_OR_RETURN(drawn.seats.emplace_back(),
                           AgedSeat(draw, work, states, round, client, staleness));
    return absl::OkStatus();
  };
  for (const auto& [client, staleness] : recorded.counted)
    MACAW_RETURN_IF_ERROR(add(client, staleness));
  for (const log::GivenUp& one : decided->second.given_up) {
    if (!recorded.counted.contains(one.attempt.client))
      MACAW_RETURN_IF_ERROR(add(one.attempt.client, 0));
  }
  InClientOrder(drawn.seats);
  return drawn;
}

}  // namespace

absl::StatusOr<DrawnRound> DrawRound(const EngineOptions& options, const Draw& draw,
                                     const ClientStates& states, Round round,
                                     const virtual_time::ClockState& clock) {
  const RunPlan& run = options.run;
  if (DevicesArrive(run)) return FollowStep(options, draw, states, round);
  if (options.devices == nullptr) {
    MACAW_ASSIGN_OR_RETURN(std::vector<Seat> seats, draw.Seats({round, clock.now}, states));
    DrawnRound drawn{.seats = std::move(seats)};
    if (LearnsFromRounds(run.cohort)) {
      for (const Seat& seat : drawn.seats) drawn.asked.push_back({.client = seat.entry.client});
    }
    return drawn;
  }
  TimedRound timed = TimeRound(run, *options.devices, options.passes, draw.sampler(), round, clock);
  ClientWork work(run, options.passes);
  DrawnRound drawn{.time = std::move(timed.time)};
  drawn.seats.reserve(timed.counted.size());
  for (const Arrival& one : timed.counted) {
    const uint32_t staleness = round.value - 1 - one.base.value;
    const Round has = WorkRound(run.asynchronous, round, staleness);
    MACAW_ASSIGN_OR_RETURN(Seat seat, draw.SeatOf(one.entry, work.In(has, one.entry), states));
    seat.staleness = staleness;
    drawn.seats.push_back(std::move(seat));
  }
  if (LearnsFromRounds(run.cohort)) {
    for (const BegunTurn& turn : timed.begun)
      drawn.asked.push_back({.client = turn.client, .seconds = turn.time.whole()});
  }
  return drawn;
}

absl::StatusOr<DrawnRound> DrawStep(const EngineOptions& options, const Draw& draw,
                                    const ClientStates& states, Round round,
                                    std::vector<Seat> train_on) {
  const RunPlan& run = options.run;
  const uint64_t places = std::max(run.asynchronous.concurrency, run.cohort.size);
  DrawnRound drawn{.seats = std::move(train_on), .step = ArrivalStep{.arrivals = run.cohort.size}};
  if (drawn.seats.size() >= places) return drawn;
  std::vector<ClientId> busy;
  for (const Seat& seat : drawn.seats) {
    if (draw.MayBeDrawnNow(seat.entry.client)) busy.push_back(seat.entry.client);
  }
  scheduler::Moment moment(round);
  moment.busy = busy;
  moment.most = places - drawn.seats.size();
  MACAW_ASSIGN_OR_RETURN(std::vector<Seat> begin, draw.Seats(moment, states));
  drawn.seats.insert(drawn.seats.end(), begin.begin(), begin.end());
  InClientOrder(drawn.seats);
  return drawn;
}

absl::StatusOr<std::vector<Seat>> TrainOnAgain(const EngineOptions& options, const Draw& draw,
                                               const ClientStates& states, Round round,
                                               const std::vector<Restored::TrainsOn>& before) {
  std::vector<Seat> seats;
  ClientWork work(options.run, options.passes);
  for (const Restored::TrainsOn& one : before) {
    MACAW_ASSIGN_OR_RETURN(seats.emplace_back(), AgedSeat(draw, work, states, round,
                                                          one.attempt.client, one.staleness + 1));
  }
  InClientOrder(seats);
  return seats;
}

absl::StatusOr<DrawnRound> DrawStepAgain(const EngineOptions& options, const Draw& draw,
                                         const ClientStates& states, Round round,
                                         const Restored::PhaseStory& before) {
  DrawnRound drawn{.seats = {},
                   .step = ArrivalStep{.arrivals = options.run.cohort.size, .keeps_leases = false}};
  ClientWork work(options.run, options.passes);
  for (const ClientId client : before.cohort) {
    const auto found = before.staleness.find(client);
    const uint32_t staleness = found != before.staleness.end() ? found->second : 0;
    MACAW_ASSIGN_OR_RETURN(drawn.seats.emplace_back(),
                           AgedSeat(draw, work, states, round, client, staleness));
  }
  InClientOrder(drawn.seats);
  return drawn;
}

std::vector<scheduler::ClientFact> FactsOf(const std::vector<AskedClient>& asked,
                                           const std::vector<fleet::ClientRecord>& records,
                                           const std::vector<uint32_t>& rows) {
  std::vector<scheduler::ClientFact> facts;
  facts.reserve(asked.size());
  auto record = records.begin();
  for (const AskedClient& one : asked) {
    record = std::find_if(record, records.end(), [&](const fleet::ClientRecord& counted) {
      return counted.attempt.client >= one.client;
    });
    scheduler::ClientFact& fact = facts.emplace_back();
    fact = {.client = one.client, .rows = rows[one.client.value], .seconds = one.seconds};
    fact.left_out = record == records.end() || record->attempt.client != one.client;
    // The first two sums of every task are the examples and their losses (training/api/metrics.h).
    if (!fact.left_out && record->sums.size() > 1 && record->sums[0] > 0)
      fact.loss = record->sums[1] / record->sums[0];
  }
  return facts;
}

}  // namespace macaw::server
