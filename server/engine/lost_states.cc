// Clients whose states are gone, because their owner kept them in its memory and is gone, or cannot
// read them from its disk. They go on without a state. A record says at which phase, so that a run
// that is repeated, or done again, comes to the same model:
//
//   StatesLost::clients  train in that phase, and later, without what they had stored
//   StatesLost::counted  have trained in that phase; what they stored, also in it, is lost after it
//   StatesLost::all      the algorithm's sum of what clients store still has what these had added.
//                        So after the round's last phase no client has a state, and the algorithm
//                        begins with its first sum: the two agree. Within the round nothing else
//                        changes.
//
// Rounds that do not wait for each other have no clients with states on a fleet (CheckLiveSteps),
// and no rule with such sums (algorithms/around: Asynchronous, WhyNoSum). So no client that trains
// when a round ends has read a state that the sum then lacks.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/engine/round_engine.h"

namespace macaw::server {

void RoundEngine::LoseStates(HoldingId holding, const std::string& node, const std::string& why) {
  if (!states_.keeps() || !roster_.begun() || state_ == State::kEnded) return;
  // The sum of a phase that is being applied has what they had added: it is too late for that round
  // to forget it.
  if (caught_up() && state_ != State::kClosing) return LoseStatesNow(holding, node, why);
  // The versions are not yet those of the moment at which they were lost.
  states_owed_.push_back({.holding = holding, .node = node, .why = why});
}

void RoundEngine::LoseStatesOwed() {
  if (!caught_up()) return;
  for (const OwedStates& owed : std::exchange(states_owed_, {}))
    LoseStatesNow(owed.holding, owed.node, owed.why);
}

void RoundEngine::LoseStatesNow(HoldingId holding, const std::string& node,
                                const std::string& why) {
  absl::flat_hash_set<ClientId> clients;
  const auto note = [&](const Attempt& version) {
    if (roster_.HoldingOf(version.client) == holding) clients.insert(version.client);
  };
  const VersionIndex& index = states_.versions().index();
  for (uint64_t page = 0; page < index.pages(); ++page) {
    for (const Attempt& version : index.Page(page)) note(version);
  }
  for (const Attempt& version : states_.versions().staged()) note(version);
  if (clients.empty()) return;
  // The rounds are done, and what has been digested was there at their end.
  if (!ending_.has_value()) LoseStatesOf({clients.begin(), clients.end()}, node, why);
  GiveUpTasksOfStates(holding, node);
}

bool RoundEngine::MayLoseState(ClientId client) const {
  const Seat* seat = phase_.Find(client);
  return seat != nullptr && seat->state.counter > 0 && caught_up();
}

void RoundEngine::LoseStatesOf(std::vector<ClientId> clients, const std::string& node,
                               const std::string& why) {
  const bool open = phase_.round().value > completed_ && state_ != State::kWaiting;
  log::StatesLost lost{.round = open ? phase_.round() : Round(completed_ + 1),
                       .phase = open ? phase_.phase() : Phase(0),
                       .name = node,
                       .why = why,
                       .all = options_.sums_states};
  begins_anew_ = begins_anew_ || lost.all;
  std::ranges::sort(clients);
  for (const ClientId client : clients) {
    const bool trains = !open || (phase_.Find(client) != nullptr && !phase_.counted(client));
    (trains ? lost.clients : lost.counted).push_back(client);
  }
  Record(std::move(lost));
  states_.versions().ForgetCurrent(clients);
  staged_before_phase_ -= states_.versions().ForgetStaged(clients, staged_before_phase_);
  if (open) ForgetSeats(clients);
}

void RoundEngine::LoseStatesBefore() {
  begins_anew_ = options_.sums_states && (options_.begins_anew || !options_.reset_states.empty());
  if (!begins_anew_ && options_.reset_states.empty()) return;
  const Round next(options_.completed + 1);
  // A server that died in this session may have recorded it.
  const log::LostStates::At* recorded = restored_.LostStatesAt(next, Phase(0));
  if (!caught_up() || (recorded != nullptr && recorded->all)) return;
  log::StatesLost lost{.round = next,
                       .clients = options_.reset_states,
                       .why = options_.reset_states.empty()
                                  ? "they were lost before the run was resumed"
                                  : "they were given up (--state-reset)",
                       .all = begins_anew_};
  std::ranges::sort(lost.clients);
  Record(std::move(lost));
}

void RoundEngine::GiveUpTasksOfStates(HoldingId holding, const std::string& node) {
  if (!evaluation_.running()) return;
  std::vector<uint64_t> tasks;
  for (const uint64_t task : evaluation_.board().Waiting(EvaluationBoard::Of(holding))) {
    const fleet::EvaluationKind kind = evaluation_.board().task(task).kind;
    if (kind == fleet::EvaluationKind::kStateDigest ||
        (options_.evaluates_states && fleet::AtClientsPoint(kind)))
      tasks.push_back(task);
  }
  GiveUpTasks(tasks, fleet::LeftOutReason::kState, absl::StrCat(node, " has lost their states"));
}

void RoundEngine::ForgetSeats(const std::vector<ClientId>& clients) {
  for (const ClientId client : clients) {
    if (phase_.Find(client) != nullptr) phase_.ForgetState(client);
  }
}

const log::LostStates::At* RoundEngine::StatesLostAt(Round round, Phase phase) const {
  if (const log::LostStates::At* lost = restored_.LostStatesAt(round, phase); lost != nullptr)
    return lost;
  const auto decided = options_.decisions.find({round, phase});
  return decided != options_.decisions.end() ? &decided->second.lost_states : nullptr;
}

// The evaluation of the round before may still read the current versions.
void RoundEngine::ForgetAtOpening() {
  const log::LostStates::At* lost = StatesLostAt(phase_.round(), phase_.phase());
  if (lost == nullptr) return;
  begins_anew_ = begins_anew_ || lost->all;
  states_.versions().ForgetStaged(lost->before);
  ForgetSeats(lost->before);
}

void RoundEngine::ForgetAtClose() {
  const log::LostStates::At* lost = StatesLostAt(phase_.round(), phase_.phase());
  if (lost == nullptr) return;
  states_.versions().ForgetCurrent(lost->before);
  states_.versions().ForgetCurrent(lost->after);
  states_.versions().ForgetStaged(lost->after);
  ForgetSeats(lost->after);
}

}  // namespace macaw::server
