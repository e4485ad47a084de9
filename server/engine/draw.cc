#include "server/engine/draw.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/status.h"
#include "training/api/straggler.h"

namespace macaw::server {

absl::StatusOr<Draw> Draw::Make(const RunPlan& run, const Roster& roster) {
  MACAW_ASSIGN_OR_RETURN(auto sampler, scheduler::MakeSampler(run.cohort, roster.rows()));
  const Digest eligible = DigestOf(BytesOf(std::span<const uint32_t>(roster.rows())));
  return Draw(run, roster, std::move(sampler), eligible);
}

absl::StatusOr<std::vector<Seat>> Draw::Seats(Round round, const ClientStates& states) const {
  const scheduler::Cohort cohort = sampler_->Sample(round);
  const bool drop = run_->cohort.straggler_policy == "drop";
  std::vector<Seat> seats;
  seats.reserve(cohort.entries.size());
  for (const scheduler::CohortEntry& entry : cohort.entries) {
    const ClientId client = entry.client;
    if (states.keeps() && entry.multiplicity > 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("client ", client.value, " was drawn ", entry.multiplicity,
                       " times, but an algorithm that keeps client states needs a cohort.sampling "
                       "without replacement"));
    }
    if (drop && training::IsStraggler(run_->cohort, round, client)) continue;
    Seat seat{.entry = entry,
              .weight = WeightOf(client),
              .tokens = roster_->tokens().empty() ? 0 : roster_->tokens()[client.value],
              .holding = roster_->HoldingOf(client),
              .place = roster_->PlaceOf(client)};
    seat.entry.steps = StepsOf(round, entry);
    if (states.keeps()) {
      seat.state = states.versions().Current(client);
      seat.entry.has_state = seat.state.counter != 0;
    }
    seats.push_back(std::move(seat));
  }
  return seats;
}

uint64_t Draw::StepsOf(Round round, const scheduler::CohortEntry& entry) const {
  const LocalConfig local = training::WorkOf(run_->cohort, run_->local, round, entry.client);
  const uint64_t batch =
      local.batch_size > 0 ? local.batch_size : std::max<uint64_t>(entry.load, 1);
  return local.steps > 0 ? local.steps : local.epochs * ((entry.load + batch - 1) / batch);
}

double Draw::WeightOf(ClientId client) const {
  switch (run_->cohort.weight) {
    case WeightPolicy::kUniform:
      return 1.0;
    case WeightPolicy::kTokens:
      return static_cast<double>(roster_->tokens()[client.value]);
    case WeightPolicy::kExamples:
      break;
  }
  return static_cast<double>(roster_->rows()[client.value]);
}

}  // namespace macaw::server
