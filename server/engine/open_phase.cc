#include "server/engine/open_phase.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "server/engine/older_models.h"

namespace macaw::server {
namespace {

// The least training time of a piece, in seconds; a lease costs a round trip of some 100 µs. This
// is also how far apart the ends of two workers may lie.
constexpr double kLeaseWorth = 2e-3;
constexpr double kForEver = 1e8;  // seconds; fits a Duration

// The seconds that a worker reports, limited so that they fit a Duration.
double Seconds(double reported) { return std::min(reported, kForEver); }

// Slot time for the part in seconds, as its worker reports it.
double SecondsOf(const fleet::Part& part) {
  double seconds = 0;
  for (const fleet::ClientRecord& record : part.included)
    seconds += record.state_seconds + record.load_seconds + record.train_seconds;
  return seconds;
}

}  // namespace

void OpenPhase::OpenRound(Round round, DrawnRound drawn, TimePoint now) {
  std::vector<AttemptTable::Held> leases;
  if (drawn.step.has_value() && drawn.step->keeps_leases) leases = table_.Leases();
  virtual_time_ = std::move(drawn.time);
  step_ = std::move(drawn.step);
  seats_ = std::move(drawn.seats);
  tally_ = RoundTally(seats_.size());
  order_ = {.round = round};
  Open(Phase(0), now);
  for (const AttemptTable::Held& lease : leases) {
    if (Find(lease.attempt.client) != nullptr)
      table_.Restore(lease.attempt, lease.worker, lease.expires);
  }
}

std::vector<Seat> OpenPhase::TrainOn() const {
  std::vector<Seat> seats;
  for (const AttemptTable::Held& lease : table_.Leases()) {
    seats.push_back(*Find(lease.attempt.client));
    ++seats.back().staleness;
  }
  return seats;
}

std::vector<log::Leased> OpenPhase::TakenOver() const {
  std::map<WorkerId, log::Leased> of_node;
  for (const AttemptTable::Held& lease : table_.Leases()) {
    log::Leased& leased = of_node[lease.worker];
    leased.attempts.push_back(lease.attempt);
  }
  std::vector<log::Leased> all;
  for (auto& [node, leased] : of_node) {
    leased.round = order_.round;
    leased.phase = order_.phase;
    leased.node = node;
    leased.staleness = StalenessOf(leased.attempts);
    all.push_back(std::move(leased));
  }
  return all;
}

void OpenPhase::Reopen(TimePoint now) {
  for (Seat& seat : seats_) {
    if (live()) seat.staleness = 0;  // nobody has begun
  }
  Open(order_.phase, now);
}

void OpenPhase::OpenNext(std::span<const Attempt> versions, TimePoint now) {
  const std::vector<ClientId> remaining = table_.Remaining();
  std::erase_if(seats_, [&](const Seat& seat) {
    return !std::binary_search(remaining.begin(), remaining.end(), seat.entry.client);
  });
  for (const Attempt& version : versions) {
    if (Find(version.client) != nullptr) SeatOf(version.client).state = version.fence;
  }
  Open(Phase(order_.phase.value + 1), now);
}

void OpenPhase::Open(Phase phase, TimePoint now) {
  order_.phase = phase;
  order_.grid = GridOf(seats_);
  order_.staleness = AgesOf(seats_);
  order_.kept.clear();
  if (step_.has_value() && !step_->live) {
    order_.grid = step_->grid;
    order_.kept = step_->kept;
  }
  if (virtual_time_.has_value()) {
    for (const Round base : virtual_time_->bases)
      order_.kept.push_back(order_.round.value - 1 - base.value);
  }
  std::vector<ClientId> clients;
  clients.reserve(seats_.size());
  for (const Seat& seat : seats_) clients.push_back(seat.entry.client);
  table_ = AttemptTable(clients);
  waiting_.Clear();
  arriving_.clear();
  ready_ = again_ = false;
  broadcast_ = {};
  report_ = {.round = order_.round,
             .phase = phase,
             .cohort = seats_.size(),
             .times = {.opened = now, .ready = now}};
}

log::RoundOpened OpenPhase::Ready(PhaseModels models, const Digest& eligible, TimePoint now) {
  broadcast_ = std::move(models.newest);
  older_ = std::move(models.older);
  most_bytes_alone_ = models.most_bytes_alone;
  report_.times.ready = now;
  ready_ = true;
  const auto trained_before = [this](const Seat& seat) { return live() && seat.staleness > 0; };
  const uint64_t begin = seats_.size() - std::ranges::count_if(seats_, trained_before);
  tally_.Sent(broadcast_, begin);
  log::RoundOpened opened{.round = order_.round,
                          .phase = order_.phase,
                          .eligible = eligible,
                          .max_weight = order_.grid.max_weight,
                          .total_weight = order_.grid.total_weight,
                          .max_multiplicity = order_.grid.max_multiplicity,
                          .total_multiplicity = order_.grid.total_multiplicity,
                          .broadcast = broadcast_.name,
                          .broadcast_bytes = broadcast_.size(),
                          .arrivals = arrivals()};
  opened.cohort.reserve(seats_.size());
  for (const Seat& seat : seats_)
    opened.cohort.push_back({.client = seat.entry.client, .multiplicity = seat.entry.multiplicity});
  return opened;
}

std::vector<scheduler::Cohort> OpenPhase::Waiting() const {
  std::vector<scheduler::Cohort> cohorts;
  for (const Seat& seat : seats_) {
    if (table_.StateOf(seat.entry.client) != AttemptTable::State::kQueued) continue;
    if (seat.holding.value >= cohorts.size()) cohorts.resize(seat.holding.value + 1);
    cohorts[seat.holding.value].entries.push_back(seat.entry);
  }
  for (scheduler::Cohort& cohort : cohorts) cohort.round = order_.round;
  return cohorts;
}

void OpenPhase::Plan(HoldingId holding, scheduler::DispatchQueue queue) {
  waiting_.Plan(holding, std::move(queue));
}

PhaseReport OpenPhase::Close(uint32_t slots, TimePoint now) {
  tally_.Close(report_, virtual_time_);
  if (virtual_time_.has_value()) clock_ = report_.clock;
  report_.times.gathered = now;
  report_.slots = slots;
  report_.mean_staleness = MeanStaleness();
  return std::exchange(report_, {});
}

std::optional<double> OpenPhase::MeanStaleness() const {
  double sum = 0, clients = 0;
  const auto add = [&](const Seat& seat) {
    sum += seat.staleness;
    ++clients;
  };
  if (step_.has_value()) {
    for (const fleet::ClientRecord& record : report_.records) add(*Find(record.attempt.client));
  } else if (virtual_time_.has_value() && virtual_time_->asynchronous) {
    for (const Seat& seat : seats_) add(seat);
  }
  if (clients == 0) return step_.has_value() ? std::optional(0.0) : std::nullopt;
  return sum / clients;
}

scheduler::Ask OpenPhase::AskOf(const Node& node, uint32_t wanted, TimePoint now) const {
  // A node without leases of this phase counts as idle, even if it evaluates.
  return {.worker = node.id,
          .slots = node.slots,
          .idle = leased_to(node.id) > 0 ? std::min(wanted, node.slots) : node.slots,
          .now = ToSeconds(now - report_.times.ready),
          .least_seconds = kLeaseWorth};
}

uint64_t OpenPhase::MostFor(const Node& node, uint64_t most) const {
  const uint64_t held = leased_to(node.id);
  const uint64_t rest = most > held ? most - held : 0;
  return node.on_trial ? std::min<uint64_t>(rest, 1) : rest;
}

OpenPhase::Handout OpenPhase::LeaseOut(const Node& node, const scheduler::Piece& piece,
                                       TimePoint expires, TimePoint now) {
  Handout handout{.when_idle = piece.when_idle};
  if (std::isfinite(piece.look_again)) {
    handout.look_again = report_.times.ready + FromSeconds(std::min(piece.look_again, kForEver));
  }
  if (piece.clients.empty()) return handout;
  fleet::TrainingLease lease = EmptyLease();
  lease.arrives = live();
  log::Leased leased{.round = order_.round, .phase = order_.phase, .node = node.id};
  leased.attempts.reserve(piece.clients.size());
  lease.assignments.reserve(piece.clients.size());
  for (const scheduler::CohortEntry& entry : piece.clients) {
    const Attempt attempt = table_.Lease(entry.client, node.id, expires, fences_);
    leased.attempts.push_back(attempt);
    Seat& seat = SeatOf(entry.client);
    seat.leased_at = now;
    lease.assignments.push_back(AssignmentOf(seat, attempt));
    AddOlder(older_, seat.staleness, lease.older);
  }
  lease.last = live() || !waiting(node.holding);
  handout.record = std::move(leased);
  handout.lease = std::move(lease);
  return handout;
}

fleet::TrainingLease OpenPhase::EmptyLease() const {
  return {.round = order_.round,
          .phase = order_.phase,
          .broadcast = broadcast_,
          .max_weight = order_.grid.max_weight,
          .total_weight = order_.grid.total_weight,
          .max_multiplicity = order_.grid.max_multiplicity,
          .total_multiplicity = order_.grid.total_multiplicity};
}

fleet::Assignment OpenPhase::AssignmentOf(const Seat& seat, const Attempt& attempt) const {
  return {.client = attempt.client,
          .place = seat.place,
          .fence = attempt.fence,
          .multiplicity = seat.entry.multiplicity,
          .weight = seat.weight,
          .state_version = seat.state,
          .staleness = seat.staleness};
}

std::vector<uint64_t> OpenPhase::StalenessOf(const std::vector<Attempt>& attempts) const {
  std::vector<uint64_t> staleness;
  bool any = false;
  if (!step_.has_value()) return staleness;
  for (const Attempt& attempt : attempts) {
    staleness.push_back(Find(attempt.client)->staleness);
    any = any || staleness.back() > 0;
  }
  if (!any) staleness.clear();
  return staleness;
}

fleet::TrainingLease OpenPhase::Arrive(const Attempt& attempt) {
  arriving_.insert(attempt.client);
  fleet::TrainingLease lease = EmptyLease();
  for (fleet::Blob& channel : lease.broadcast.channels)  // its vectors are not needed any more
    channel = {.digest = channel.digest, .size = channel.size};
  lease.assignments.push_back(AssignmentOf(*Find(attempt.client), attempt));
  lease.last = true;
  return lease;
}

log::GaveUp OpenPhase::GiveUp(const Attempt& attempt, log::GivenUp why) {
  log::GaveUp gave_up{.round = order_.round, .phase = order_.phase};
  why.attempt = attempt;
  table_.GiveUp({&attempt, 1});
  NoteGivenUp(why, gave_up);
  return gave_up;
}

std::optional<log::Requeued> OpenPhase::Requeue(std::vector<Attempt> ended, std::string why) {
  if (ended.empty()) return std::nullopt;
  for (const Attempt& attempt : ended) {
    Seat& seat = SeatOf(attempt.client);
    waiting_.PutBack(seat.holding, seat.entry);
    if (live()) seat.staleness = 0;  // it begins again, from the newest model
    arriving_.erase(attempt.client);
  }
  if (!ready_ || again_) return std::nullopt;
  report_.requeued += ended.size();
  return log::Requeued{.round = order_.round,
                       .phase = order_.phase,
                       .attempts = std::move(ended),
                       .why = std::move(why)};
}

std::optional<log::Requeued> OpenPhase::Expire(TimePoint now,
                                               std::vector<AttemptTable::Late>& late) {
  if (table_.NextExpiry() > now) return std::nullopt;
  late = table_.Expire(now);
  std::vector<Attempt> ended;
  for (const AttemptTable::Late& one : late) ended.push_back(one.attempt);
  std::ranges::sort(ended);
  return Requeue(std::move(ended), "lease ran out");
}

void OpenPhase::ForgetState(ClientId client) {
  Seat& seat = SeatOf(client);
  seat.state = {};
  seat.entry.has_state = false;
}

std::optional<log::Requeued> OpenPhase::DropNode(WorkerId node, const std::string& why) {
  return Requeue(table_.DropWorker(node), why);
}

std::optional<log::Requeued> OpenPhase::Release(WorkerId node, std::span<const Attempt> attempts,
                                                const std::string& why) {
  return Requeue(table_.Release(node, attempts), why);
}

void OpenPhase::RemoveFromPlan(const Node& node) { waiting_.RemoveWorker(node.holding, node.id); }

log::Accepted OpenPhase::Accept(const Node& node, uint64_t commit, const fleet::Part& part) {
  log::Accepted accepted{.round = order_.round,
                         .phase = order_.phase,
                         .node = node.id,
                         .commit = commit,
                         .given_up = log::GivenUpOf(part.left_out),
                         .sums = part.sums.digest,
                         .seconds = SecondsOf(part),
                         .sums_bytes = part.sums.size};
  accepted.included.reserve(part.included.size());
  for (const fleet::ClientRecord& record : part.included) {
    accepted.included.push_back(record.attempt);
    report_.turns.push_back(
        {.client = record.attempt.client,
         .worker = node.id,
         .slot = record.slot,
         .began = Find(record.attempt.client)->leased_at + FromSeconds(Seconds(record.began_after)),
         .state_seconds = Seconds(record.state_seconds),
         .load_seconds = Seconds(record.load_seconds),
         .train_seconds = Seconds(record.train_seconds),
         .steps = record.steps});
  }
  accepted.staleness = StalenessOf(accepted.included);
  std::vector<Attempt> left_out;
  for (const fleet::LeftOut& left : part.left_out) left_out.push_back(left.attempt);
  for (const auto* settled : {&accepted.included, &left_out}) {
    for (const Attempt& attempt : *settled) arriving_.erase(attempt.client);
  }
  table_.Count(accepted.included);
  table_.GiveUp(left_out);
  report_.records.insert(report_.records.end(), part.included.begin(), part.included.end());
  report_.left_out.insert(report_.left_out.end(), part.left_out.begin(), part.left_out.end());
  return accepted;
}

std::optional<log::GaveUp> OpenPhase::DoWithout(const std::vector<log::GivenUp>& clients) {
  log::GaveUp gave_up{.round = order_.round, .phase = order_.phase};
  for (const log::GivenUp& one : clients) {
    const ClientId client = one.attempt.client;
    if (Find(client) == nullptr) continue;
    if (table_.StateOf(client) != AttemptTable::State::kQueued) continue;
    table_.GiveUpQueued(client);
    waiting_.Remove(Find(client)->holding, client);
    NoteGivenUp(one, gave_up);
  }
  if (gave_up.given_up.empty()) return std::nullopt;
  return gave_up;
}

void OpenPhase::NoteGivenUp(const log::GivenUp& given_up, log::GaveUp& gave_up) {
  arriving_.erase(given_up.attempt.client);
  report_.left_out.push_back(
      {.attempt = given_up.attempt, .reason = given_up.reason, .message = TextOf(given_up)});
  gave_up.given_up.push_back(given_up);
}

log::RoundLost OpenPhase::Drop(const std::string& why) {
  std::set<ClientId> noted;
  for (const fleet::LeftOut& left : report_.left_out) noted.insert(left.attempt.client);
  for (const Seat& seat : seats_) {
    const ClientId client = seat.entry.client;
    if (noted.contains(client)) continue;
    report_.left_out.push_back({.attempt = {.client = client},
                                .reason = fleet::LeftOutReason::kNotNeeded,
                                .message = "the round was dropped"});
  }
  table_.GiveUpAll();
  arriving_.clear();
  waiting_.Clear();
  report_.records.clear();
  report_.turns.clear();
  report_.dropped = why;
  return {.round = order_.round, .phase = order_.phase, .why = why, .dropped = true};
}

void OpenPhase::Restore(const Attempt& attempt, WorkerId node, TimePoint expires) {
  table_.Restore(attempt, node, expires);
}

Standing OpenPhase::standing() const {
  return {.drawn = tally_.drawn(),
          .cohort = report_.cohort,
          .waiting = table_.queued(),
          .leased = table_.leased(),
          .counted = table_.counted(),
          .given_up = table_.given_up(),
          .arriving = arriving_.size()};
}

const Seat* OpenPhase::Find(ClientId client) const {
  const auto it =
      std::lower_bound(seats_.begin(), seats_.end(), client,
                       [](const Seat& seat, ClientId id) { return seat.entry.client < id; });
  return it != seats_.end() && it->entry.client == client ? &*it : nullptr;
}

Seat& OpenPhase::SeatOf(ClientId client) {
  return seats_[static_cast<size_t>(Find(client) - seats_.data())];
}

}  // namespace macaw::server
