// What operators see of the run.
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/spelling.h"
#include "server/engine/round_engine.h"

namespace macaw::server {
namespace {

using admin::RunState;
using admin::Step;

std::string Doing(const admin::NodeStatus& node, uint64_t tasks) {
  if (node.leased > 0) return absl::StrCat("trains ", Counted(node.leased, "client"));
  if (tasks > 0) return "evaluates";
  return node.waits ? "waits for work" : "between two calls";
}

}  // namespace

admin::RunState RoundEngine::RunStateNow() const {
  if (state_ == State::kEnded) return RunState::kEnded;
  if (completed_ >= LastRound() || ending_.has_value()) return RunState::kEnding;
  if (operators_.drain) return RunState::kDraining;
  if (operators_.held.has_value()) return RunState::kPaused;
  if (operators_.pause) return RunState::kPausing;
  return state_ == State::kGathering ? RunState::kWaiting : RunState::kRunning;
}

admin::Step RoundEngine::StepNow() const {
  switch (state_) {
    case State::kGathering:
      return Step::kGathering;
    case State::kWaiting:
      return Step::kAwaiting;
    case State::kPreparing:
      return Step::kPreparing;
    case State::kRunning:
      return Step::kTraining;
    case State::kClosing:
      return Step::kApplying;
    case State::kDraining:
      return evaluation_.open() ? Step::kEvaluating : Step::kIdle;
    case State::kEnded:
      break;
  }
  return Step::kIdle;
}

void RoundEngine::Describe(admin::RunStatus& status, TimePoint now) const {
  status.state = RunStateNow();
  status.step = StepNow();
  status.epoch = options_.epoch;
  status.round = phase_.round().value;
  status.phase = phase_.phase().value;
  status.rounds = LastRound();
  status.completed = completed_;
  status.lease_seconds = ToSeconds(options_.lease_timeout);
  const PhaseTimes& times = phase_.report().times;
  if (operators_.held.has_value()) status.step_seconds = ToSeconds(now - *operators_.held);
  if (status.step == Step::kPreparing) status.step_seconds = ToSeconds(now - times.opened);
  if (status.step == Step::kTraining) {
    status.step_seconds = ToSeconds(now - times.ready);
    const Standing standing = phase_.standing();
    status.cohort = standing.cohort;
    status.waiting = standing.waiting;
    status.leased = standing.leased;
    status.counted = standing.counted;
    status.given_up = standing.given_up;
    status.requeued = phase_.report().requeued;
    DescribeMissing(status);
  }
  const Evaluation::Progress evaluation = evaluation_.progress();
  status.evaluated_round = evaluation.round.value;
  status.evaluation_tasks = evaluation.tasks;
  status.evaluation_done = evaluation.done;
  status.nodes_wanted = options_.workers;
  status.clients_wanted = options_.run.clients;
  status.clients_known = roster_.clients();
  for (const auto& [name, one] : operators_.quarantine) status.quarantine.push_back(one);
  DescribeNodes(status, now);
}

void RoundEngine::DescribeMissing(admin::RunStatus& status) const {
  const std::vector<scheduler::Cohort> waiting = phase_.Waiting();
  for (uint32_t i = 0; i < waiting.size(); ++i) {
    const HoldingId holding(i);
    if (waiting[i].entries.empty() || !nodes_.Of(holding).members.empty()) continue;
    status.missing.push_back(
        {.owner = roster_.owner_of(holding), .clients = waiting[i].entries.size()});
  }
}

void RoundEngine::DescribeNodes(admin::RunStatus& status, TimePoint now) const {
  const absl::flat_hash_map<WorkerId, uint64_t> evaluating = evaluation_.Held();
  for (const auto& [id, node] : nodes_) {
    admin::NodeStatus one{.name = node.name,
                          .program = node.program,
                          .slots = node.slots,
                          .clients = roster_.clients_of(node.holding),
                          .owner = !roster_.owner_of(node.holding).empty(),
                          .waits = node.poll.has_value(),
                          .on_trial = node.on_trial,
                          .silent_seconds = ToSeconds(now - node.heard),
                          .leased = phase_.leased_to(id)};
    const auto tasks = evaluating.find(id);
    one.doing = node.declined.empty() ? Doing(one, tasks == evaluating.end() ? 0 : tasks->second)
                                      : absl::StrCat("declines: ", node.declined);
    status.nodes.push_back(std::move(one));
  }
}

}  // namespace macaw::server
