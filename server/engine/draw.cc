#include "server/engine/draw.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/spelling.h"
#include "core/status.h"
#include "plan/local_steps.h"
#include "server/engine/round_policy.h"
#include "server/engine/timed_round.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"

namespace macaw::server {

namespace {

// The rows of each client, 0 for those that are not eligible and for those that cannot take a step.
// Empty: everybody can be drawn.
std::vector<uint32_t> EligibleRows(const RunPlan& run, const Roster& roster) {
  const uint32_t steps = LeastRows(run.local);
  const auto cannot_step = [&](uint32_t rows) { return rows > 0 && rows < steps; };
  if (!FiltersClients(run.cohort) && std::ranges::none_of(roster.rows(), cannot_step)) return {};
  const uint32_t least = std::max(run.cohort.min_rows.value_or(1), steps);
  std::vector<uint32_t> rows = roster.rows();
  for (uint64_t client = 0; client < rows.size(); ++client) {
    if (rows[client] < least || !roster.MayBeDrawn(ClientId(client))) rows[client] = 0;
  }
  return rows;
}

// Of clients that are not enough for a cohort.
absl::Status CheckLeft(const RunPlan& run, const std::vector<uint32_t>& rows) {
  const auto left = rows.size() - static_cast<size_t>(std::ranges::count(rows, 0U));
  if (left >= scheduler::AskedClients(run.cohort)) return absl::OkStatus();
  std::string keys = FiltersClients(run.cohort) ? "cohort.eligible and cohort.min_rows leave " : "";
  if (LeastRows(run.local) > 1) {
    keys = absl::StrCat(FiltersClients(run.cohort) ? "cohort.eligible, cohort.min_rows and " : "",
                        "local.drop_last (", run.local.batch_size, " rows for a step) leave ");
  }
  return absl::InvalidArgumentError(
      absl::StrCat(keys, left, " of ", rows.size(), " clients to draw from, but a round asks ",
                   scheduler::AskedClients(run.cohort), " (cohort.size, cohort.over_selection)"));
}

}  // namespace

absl::StatusOr<Draw::Pool> Draw::PoolOf(const RunPlan& run, const Roster& roster,
                                        const virtual_time::Presence* presence,
                                        const scheduler::Feedback* feedback,
                                        std::vector<uint32_t> rows) {
  Pool pool{.rows = std::move(rows)};
  const std::span<const uint32_t> all = pool.rows.empty() ? roster.rows() : pool.rows;
  MACAW_ASSIGN_OR_RETURN(pool.sampler, SamplerOf(run, all, presence, feedback));
  pool.digest = DigestOf(BytesOf(all));
  return pool;
}

absl::StatusOr<Draw> Draw::Make(const RunPlan& run, const Roster& roster,
                                const virtual_time::Presence* presence, bool joins) {
  std::vector<uint32_t> rows = EligibleRows(run, roster);
  if (!rows.empty()) MACAW_RETURN_IF_ERROR(CheckLeft(run, rows));
  auto feedback =
      LearnsFromRounds(run.cohort) ? std::make_unique<scheduler::Feedback>(run.cohort) : nullptr;
  MACAW_ASSIGN_OR_RETURN(Pool everybody,
                         PoolOf(run, roster, presence, feedback.get(), std::move(rows)));
  return Draw(run, roster, presence, joins, std::move(feedback), std::move(everybody));
}

absl::Status Draw::CheckCanChange() const {
  MACAW_RETURN_IF_ERROR(CheckChance(run_->cohort, "round.present_within"));
  const std::string& sampling = run_->cohort.sampling;
  if (sampling != "sweep" && sampling != "cyclic") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cohort.sampling = \"", sampling,
                   "\" draws everybody once before anybody again, which cannot be kept with "
                   "round.present_within: use \"uniform\""));
}

absl::Status Draw::Among(std::vector<ClientId> present) {
  present_ = std::move(present);
  some_.reset();
  if (present_.empty()) return absl::OkStatus();
  const std::vector<uint32_t>& all = drawable_rows();
  std::vector<uint32_t> rows(all.size(), 0);
  for (size_t i = 0; i + 1 < present_.size(); i += 2) {
    const uint64_t end = std::min<uint64_t>(present_[i + 1].value, rows.size());
    for (uint64_t client = present_[i].value; client < end; ++client) rows[client] = all[client];
  }
  MACAW_ASSIGN_OR_RETURN(some_,
                         PoolOf(*run_, *roster_, presence_, feedback_.get(), std::move(rows)));
  return absl::OkStatus();
}

bool Draw::MayBeDrawnNow(ClientId client) const {
  const std::vector<uint32_t>& rows = pool().rows.empty() ? roster_->rows() : pool().rows;
  return client.value < rows.size() && rows[client.value] > 0;
}

uint64_t Draw::Drawable(const std::vector<ClientId>& present) const {
  uint64_t drawable = 0;
  for (size_t i = 0; i + 1 < present.size(); i += 2) {
    for (uint64_t client = present[i].value; client < present[i + 1].value; ++client)
      drawable += drawable_rows()[client] > 0 ? 1 : 0;
  }
  return drawable;
}

uint64_t Draw::needed() const {
  // With replacement, one client can be the whole cohort.
  return run_->cohort.sampling == "proportional" ? 1 : scheduler::AskedClients(run_->cohort);
}

absl::StatusOr<std::vector<Seat>> Draw::Seats(scheduler::Moment moment,
                                              const ClientStates& states) const {
  const Round round = moment.round;
  const std::vector<scheduler::CohortEntry> asked = AskedIn(*run_, sampler(), moment);
  const LocalConfig local = training::RoundLocal(*run_, round);
  std::vector<Seat> seats;
  seats.reserve(asked.size());
  for (const scheduler::CohortEntry& entry : asked) {
    MACAW_ASSIGN_OR_RETURN(Seat seat, SeatOf(entry,
                                             training::WorkOf(run_->cohort, local, round,
                                                              entry.client, entry.load, joins_),
                                             states));
    seats.push_back(std::move(seat));
  }
  return seats;
}

absl::StatusOr<Seat> Draw::SeatOf(const scheduler::CohortEntry& entry, const LocalConfig& work,
                                  const ClientStates& states) const {
  const ClientId client = entry.client;
  if (states.keeps() && entry.multiplicity > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("client ", client.value, " was drawn ", entry.multiplicity,
                     " times, but an algorithm that keeps client states needs a cohort.sampling "
                     "without replacement"));
  }
  Seat seat{.entry = entry,
            .weight = WeightOf(client),
            .tokens = roster_->tokens().empty() ? 0 : roster_->tokens()[client.value],
            .holding = roster_->HoldingOf(client),
            .place = roster_->PlaceOf(client)};
  seat.entry.steps = StepsOf(work, entry.load, joins_);
  if (states.keeps()) {
    seat.state = states.versions().Current(client);
    seat.entry.has_state = seat.state.counter != 0;
  }
  return seat;
}

uint64_t Draw::OwnWeight(ClientId client) const {
  const bool tokens = run_->cohort.weight == WeightPolicy::kTokens;
  return tokens ? roster_->tokens()[client.value] : roster_->rows()[client.value];
}

double Draw::WeightOf(ClientId client) const {
  if (run_->cohort.weight == WeightPolicy::kUniform) return 1;
  return static_cast<double>(CountedOf(run_->cohort, OwnWeight(client)));
}

std::string Draw::BoundedWeights() const {
  const CohortConfig& cohort = run_->cohort;
  if (cohort.weight == WeightPolicy::kUniform || cohort.max_weight == 0) return "";
  uint64_t clients = 0, largest = 0;
  for (ClientId client; client.value < drawable_rows().size(); ++client.value) {
    if (drawable_rows()[client.value] == 0 || OwnWeight(client) <= cohort.max_weight) continue;
    ++clients;
    largest = std::max(largest, OwnWeight(client));
  }
  if (clients == 0) return "";
  return absl::StrCat(Counted(clients, "client"), " with up to ", largest,
                      cohort.weight == WeightPolicy::kTokens ? " tokens" : " examples",
                      clients == 1 ? " counts" : " count",
                      " as cohort.max_weight = ", cohort.max_weight);
}

}  // namespace macaw::server
