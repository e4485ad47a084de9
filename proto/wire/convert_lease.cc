#include <algorithm>

#include "proto/wire/convert.h"
#include "proto/wire/fields.h"

// Leases: the request for work and the work that the worker gets.
namespace macaw::wire {

static_assert(v1::NEXT_REGISTER == static_cast<int>(fleet::Next::kRegister) + 1);
static_assert(v1::EVALUATION_KIND_CENTRAL_VALIDATION ==
              static_cast<int>(fleet::EvaluationKind::kCentralValidation) + 1);

static Fence FromWire(const v1::Fence& m) { return {m.epoch(), m.counter()}; }

static v1::Assignments ToWire(const std::vector<fleet::Assignment>& assignments) {
  v1::Assignments m;
  const bool repeated = std::any_of(assignments.begin(), assignments.end(),
                                    [](const auto& a) { return a.multiplicity != 1; });
  const bool versioned = std::any_of(assignments.begin(), assignments.end(),
                                     [](const auto& a) { return a.state_version != Fence{}; });
  const bool elsewhere = std::any_of(assignments.begin(), assignments.end(),
                                     [](const auto& a) { return a.place != a.client.value; });
  for (const fleet::Assignment& assignment : assignments) {
    if (elsewhere) m.add_place(assignment.place);
    m.add_client(assignment.client.value);
    m.add_epoch(assignment.fence.epoch);
    m.add_counter(assignment.fence.counter);
    if (repeated) m.add_multiplicity(assignment.multiplicity);
    m.add_weight(assignment.weight);
    if (!versioned) continue;
    m.add_state_epoch(assignment.state_version.epoch);
    m.add_state_counter(assignment.state_version.counter);
  }
  return m;
}

static absl::StatusOr<std::vector<fleet::Assignment>> FromWire(const v1::Assignments& m) {
  Fields f;
  const int clients = m.client_size();
  f.CheckColumn("epoch", m.epoch(), clients);
  f.CheckColumn("counter", m.counter(), clients);
  f.CheckColumn("multiplicity", m.multiplicity(), clients, true);
  f.CheckColumn("weight", m.weight(), clients);
  f.CheckColumn("state_epoch", m.state_epoch(), clients, true);
  f.CheckColumn("state_counter", m.state_counter(), m.state_epoch_size());
  f.CheckColumn("place", m.place(), clients, true);
  std::vector<fleet::Assignment> assignments(f.status().ok() ? clients : 0);
  for (int i = 0; i < static_cast<int>(assignments.size()); ++i) {
    fleet::Assignment& assignment = assignments[i];
    assignment.client = ClientId(m.client(i));
    assignment.place = m.place().empty() ? m.client(i) : m.place(i);
    assignment.fence = {m.epoch(i), m.counter(i)};
    assignment.multiplicity = f.MultiplicityAt(m.multiplicity(), i);
    assignment.weight = f.NotNegativeAt("weight", m.weight(), i);
    if (!m.state_epoch().empty()) assignment.state_version = {m.state_epoch(i), m.state_counter(i)};
  }
  return f.Done(std::move(assignments));
}

static v1::TrainingLease ToWire(const fleet::TrainingLease& lease, const InlineRule& rule) {
  v1::TrainingLease m;
  m.set_round(lease.round.value);
  m.set_phase(lease.phase.value);
  for (const fleet::Blob& channel : lease.broadcast.channels)
    *m.add_broadcast() = ToWire(channel, rule);
  m.set_max_weight(lease.max_weight);
  m.set_total_weight(lease.total_weight);
  m.set_max_multiplicity(lease.max_multiplicity);
  m.set_total_multiplicity(lease.total_multiplicity);
  *m.mutable_assignments() = ToWire(lease.assignments);
  m.set_last(lease.last);
  return m;
}

static absl::StatusOr<fleet::TrainingLease> FromWire(const v1::TrainingLease& m,
                                                     InlineBytes inline_bytes) {
  Fields f;
  fleet::TrainingLease lease;
  lease.round = Round(m.round());
  lease.phase = Phase(static_cast<uint8_t>(f.Between<uint32_t>("phase", m.phase(), 0, 255)));
  lease.broadcast =
      fleet::Broadcast::Of(f.List("broadcast", m.broadcast(), [=](const v1::Blob& channel) {
        return FromWire(channel, inline_bytes);
      }));
  lease.max_weight = f.NotNegative("max_weight", m.max_weight());
  lease.total_weight = f.NotNegative("total_weight", m.total_weight());
  lease.max_multiplicity = m.max_multiplicity();
  lease.total_multiplicity = m.total_multiplicity();
  lease.assignments = f.Sub("assignments", FromWire(m.assignments()));
  lease.last = m.last();
  return f.Done(std::move(lease));
}

static absl::StatusOr<fleet::EvaluationLease> FromWire(const v1::EvaluationLease& m,
                                                       InlineBytes inline_bytes) {
  Fields f;
  fleet::EvaluationLease lease;
  lease.round = Round(m.round());
  lease.model = f.Sub("model", FromWire(m.model(), inline_bytes));
  lease.tasks =
      f.List("tasks", m.tasks(), [](const v1::EvaluationTask& task) { return FromWire(task); });
  return f.Done(std::move(lease));
}

v1::LeaseRequest ToWire(const fleet::LeaseRequest& request, Duration wait) {
  v1::LeaseRequest m;
  m.set_session(request.session.value);
  m.set_wanted(request.wanted);
  m.set_running(request.running);
  for (const Digest& digest : request.have) m.add_have(ToWire(digest));
  m.set_wait_ns(std::max<int64_t>(0, wait.count()));
  m.set_declined(CleanText(request.declined));
  return m;
}

absl::StatusOr<TimedLeaseRequest> FromWire(const v1::LeaseRequest& m) {
  Fields f;
  TimedLeaseRequest timed;
  timed.request.session = SessionId(m.session());
  timed.request.wanted = m.wanted();
  timed.request.running = m.running();
  for (const std::string& digest : m.have())
    timed.request.have.push_back(f.ReadDigest("have", digest));
  timed.wait = f.ReadDuration("wait_ns", m.wait_ns());
  timed.request.declined = CleanText(m.declined());
  return f.Done(std::move(timed));
}

v1::EvaluationTask ToWire(const fleet::EvaluationTask& task) {
  v1::EvaluationTask m;
  *m.mutable_fence() = ToWire(task.fence);
  m.set_kind(ToWireEnum<v1::EvaluationKind>(task.kind));
  m.set_client(task.client.value);
  m.set_place(task.place);
  m.set_begin(task.begin);
  m.set_end(task.end);
  if (task.state_version != Fence{}) *m.mutable_state_version() = ToWire(task.state_version);
  for (const Attempt& state : task.states) *m.add_states() = ToWire(state);
  return m;
}

absl::StatusOr<fleet::EvaluationTask> FromWire(const v1::EvaluationTask& m) {
  Fields f;
  fleet::EvaluationTask task;
  task.fence = FromWire(m.fence());
  task.kind = f.Enum("kind", m.kind(), fleet::EvaluationKind::kCentralValidation);
  task.client = ClientId(m.client());
  task.place = m.place();
  f.Require(m.begin() <= m.end(), "begin", "lies behind end");
  task.begin = m.begin();
  task.end = m.end();
  task.state_version = FromWire(m.state_version());
  for (const v1::Attempt& state : m.states()) task.states.push_back(FromWire(state));
  return f.Done(std::move(task));
}

v1::LeaseReply ToWire(const fleet::LeaseReply& reply, const InlineRule& rule) {
  v1::LeaseReply m;
  m.set_next(ToWireEnum<v1::Next>(reply.next));
  if (reply.training.has_value()) *m.mutable_training() = ToWire(*reply.training, rule);
  if (reply.evaluation.has_value()) {
    v1::EvaluationLease& lease = *m.mutable_evaluation();
    lease.set_round(reply.evaluation->round.value);
    if (reply.evaluation->model.named())
      *lease.mutable_model() = ToWire(reply.evaluation->model, rule);
    for (const fleet::EvaluationTask& task : reply.evaluation->tasks)
      *lease.add_tasks() = ToWire(task);
  }
  for (const Attempt& version : reply.deletable) *m.add_deletable() = ToWire(version);
  m.set_when_idle(reply.when_idle);
  return m;
}

absl::StatusOr<fleet::LeaseReply> FromWire(const v1::LeaseReply& m, InlineBytes inline_bytes) {
  Fields f;
  fleet::LeaseReply reply;
  reply.next = f.Enum("next", m.next(), fleet::Next::kRegister);
  if (m.has_training()) reply.training = f.Sub("training", FromWire(m.training(), inline_bytes));
  if (m.has_evaluation())
    reply.evaluation = f.Sub("evaluation", FromWire(m.evaluation(), inline_bytes));
  f.Require(reply.next != fleet::Next::kWork || m.has_training() || m.has_evaluation(), "next",
            "work without any work in it");
  for (const v1::Attempt& version : m.deletable()) reply.deletable.push_back(FromWire(version));
  reply.when_idle = m.when_idle();
  return f.Done(std::move(reply));
}

}  // namespace macaw::wire
