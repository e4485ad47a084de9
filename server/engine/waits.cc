// What ends the waits for nodes: the limits of leases, the deadline of an evaluation, rows that are
// gone, and owners that an operator has given up. The table of all waits is in server/README.md.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/logging.h"
#include "core/spelling.h"
#include "scheduler/cost.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

constexpr uint32_t kMostDoublings = 6;  // of a client's lease in one round
constexpr double kLongestLease = 1e8;   // seconds; fits a Duration

}  // namespace

// ---- leases

Duration RoundEngine::LeaseLimit(const Node& node, const fleet::TrainingLease& lease) {
  const scheduler::Costs costs = speeds_.Of(lease.phase).CostsOf(node.id);
  const double most = ToSeconds(options_.waits.lease_limit);
  double all = 0, longest = 0;
  for (const fleet::Assignment& one : lease.assignments) {
    const double expected = costs.Seconds(scheduler::WorkOf(phase_.Find(one.client)->entry));
    const double allowed =
        costs.known ? std::min(most, options_.waits.lease_factor * expected) : most;
    const uint32_t doublings = std::min(troubles_.TimesRanOut(one.client), kMostDoublings);
    const double seconds = std::ldexp(allowed, static_cast<int>(doublings));
    all += seconds;
    longest = std::max(longest, seconds);
  }
  const auto slots =
      std::clamp<size_t>(node.slots, 1, std::max<size_t>(lease.assignments.size(), 1));
  const Duration limit =
      FromSeconds(std::min(longest + all / static_cast<double>(slots), kLongestLease));
  return std::max(limit, LeastLease());
}

void RoundEngine::NoteWaited(const std::string& name, Duration time) {
  Node* const node = nodes_.Named(name);
  if (node == nullptr) return;
  time = std::min(time, options_.waits.lease_limit - node->waited);
  node->waited += time;
  node->leased_until += time;
}

Duration RoundEngine::TaskLimit() const {
  return std::max(LeastLease(), options_.waits.lease_limit);
}

void RoundEngine::Renew(const Node& node, TimePoint now) {
  const bool waits = node.poll.has_value();  // for others; its time does not run
  const bool arrives = waits && !node.poll->request.trained.empty();
  if (!arrives && now - node.progressed >= LeastLease()) return;
  const TimePoint expires = now + options_.lease_timeout;
  phase_.Renew(node.id, waits ? expires : std::min(expires, node.leased_until));
  evaluation_.Renew(node.id, waits ? expires : std::min(expires, node.tasks_until));
}

// ---- evaluations

void RoundEngine::SetEvaluationDeadline(TimePoint now) {
  const double deadline = options_.round.deadline;
  evaluation_deadline_ =
      now + (deadline > 0 ? std::max(FromSeconds(deadline), LeastLease()) : 2 * TaskLimit());
}

// ---- rows that are gone

void RoundEngine::NoteAbsent(const Node& lost, TimePoint now) {
  if (nodes_.Of(lost.holding).members.empty()) absence_.Begin(lost.holding, now);
  if (lost.central_test && nodes_.central().members.empty())
    absence_.Begin(Absence::Central(), now);
}

void RoundEngine::NotePresent(const Node& joined) {
  awaited_.erase(joined.holding);
  absence_.End(joined.holding);
  if (joined.central_test) absence_.End(Absence::Central());
}

void RoundEngine::NoteAbsentAtBegin(TimePoint now) {
  for (HoldingId holding; holding.value < roster_.holdings(); ++holding.value) {
    if (nodes_.Of(holding).members.empty()) absence_.Begin(holding, now);
  }
  if (roster_.has_central_rows() && nodes_.central().members.empty())
    absence_.Begin(Absence::Central(), now);
}

void RoundEngine::GiveUpGone(const std::vector<HoldingId>& rows) {
  for (const HoldingId one : rows) DoTasksWithout(one, fleet::LeftOutReason::kGone, WhyGone());
  if (live_) GiveUpGoneClients(rows);
}

std::string RoundEngine::WhyGone() const {
  return absl::StrFormat("no node with these rows has been there for %.0f s",
                         ToSeconds(options_.lease_timeout));
}

// ---- owners that are given up

bool RoundEngine::IsAbandoned(HoldingId holding) const {
  return operators_.given_up.contains(roster_.owner_of(holding)) &&
         nodes_.Of(holding).members.empty();
}

void RoundEngine::GiveUpAbandoned() {
  if (operators_.given_up.empty() || !roster_.begun()) return;
  const bool trains = state_ == State::kRunning && !redoing() && !phase_.dropped();
  const std::vector<scheduler::Cohort> cohorts =
      trains ? phase_.Waiting() : std::vector<scheduler::Cohort>();
  std::vector<log::GivenUp> clients;
  for (HoldingId holding; holding.value < roster_.holdings(); ++holding.value) {
    if (!IsAbandoned(holding)) continue;
    const std::string& owner = roster_.owner_of(holding);
    const std::string why = absl::StrCat(owner, " was given up by ", operators_.given_up.at(owner));
    DoTasksWithout(holding, fleet::LeftOutReason::kGone, why);
    if (holding.value >= cohorts.size()) continue;
    for (const scheduler::CohortEntry& entry : cohorts[holding.value].entries) {
      clients.push_back({.attempt = {.client = entry.client},
                         .reason = fleet::LeftOutReason::kGone,
                         .message = why});
    }
  }
  if (!clients.empty()) Record(phase_.DoWithout(clients));
}

void RoundEngine::PassGatheringDeadline(TimePoint now) {
  deadline_ = now + FromSeconds(options_.round.deadline);
  uint64_t missing = 0;
  for (const HoldingId holding : awaited_) missing += roster_.clients_of(holding);
  const uint64_t clients = roster_.clients();
  if (clients - missing < options_.round.Needed(clients)) return;
  Logger("server").Warning(absl::StrCat("begins_without clients=", missing,
                                        ": their owners have not come back (round.deadline)"));
  awaited_.clear();
  gathered_ = true;
  if (ReadyToBegin()) Begin(now);
}

void RoundEngine::EndDrainedInVain() {
  if (!operators_.drain || state_ != State::kRunning || !caught_up() || phase_.adding()) return;
  const Standing standing = phase_.standing();
  if (standing.leased > 0 || standing.waiting == 0) return;
  const std::vector<scheduler::Cohort> waiting = phase_.Waiting();
  for (uint32_t i = 0; i < waiting.size(); ++i) {
    if (!waiting[i].entries.empty() && !absence_.Gone(HoldingId(i)) && nodes_.size() > 0) return;
  }
  EndDrained(absl::StrCat("; round ", phase_.round().value,
                          " is left undone: the nodes of its last ",
                          Counted(standing.waiting, "client"), " are gone"));
}

}  // namespace macaw::server
