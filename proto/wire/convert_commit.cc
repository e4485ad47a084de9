#include "proto/wire/convert.h"
#include "proto/wire/fields.h"

// Commits: the only messages that grow with the clients.
namespace macaw::wire {
namespace {

static_assert(v1::LEFT_OUT_REASON_FAILED == static_cast<int>(fleet::LeftOutReason::kFailed) + 1);
static_assert(v1::VERDICT_REGISTER == static_cast<int>(fleet::Verdict::kRegister) + 1);

v1::ClientRecord ToWire(const fleet::ClientRecord& record) {
  v1::ClientRecord m;
  *m.mutable_attempt() = wire::ToWire(record.attempt);
  m.set_multiplicity(record.multiplicity);
  m.set_weight(record.weight);
  m.set_examples(record.examples);
  m.set_steps(record.steps);
  m.mutable_sums()->Add(record.sums.begin(), record.sums.end());
  m.set_load_seconds(record.load_seconds);
  m.set_train_seconds(record.train_seconds);
  m.set_has_state(record.has_state);
  m.set_state_seconds(record.state_seconds);
  m.set_slot(record.slot);
  m.set_began_after(record.began_after);
  return m;
}

absl::StatusOr<fleet::ClientRecord> FromWire(const v1::ClientRecord& m) {
  Fields f;
  fleet::ClientRecord record;
  record.attempt = wire::FromWire(m.attempt());
  record.multiplicity = m.multiplicity();
  f.Require(m.multiplicity() >= 1, "multiplicity", "is 0");
  record.weight = f.NotNegative("weight", m.weight());
  record.examples = m.examples();
  record.steps = m.steps();
  record.sums.assign(m.sums().begin(), m.sums().end());  // any double: the engine judges metrics
  record.load_seconds = f.NotNegative("load_seconds", m.load_seconds());
  record.train_seconds = f.NotNegative("train_seconds", m.train_seconds());
  record.has_state = m.has_state();
  record.state_seconds = f.NotNegative("state_seconds", m.state_seconds());
  record.slot = m.slot();
  record.began_after = f.NotNegative("began_after", m.began_after());
  return f.Done(std::move(record));
}

v1::LeftOut ToWire(const fleet::LeftOut& left_out) {
  v1::LeftOut m;
  *m.mutable_attempt() = wire::ToWire(left_out.attempt);
  m.set_reason(ToWireEnum<v1::LeftOutReason>(left_out.reason));
  m.set_message(CleanText(left_out.message));
  return m;
}

absl::StatusOr<fleet::LeftOut> FromWire(const v1::LeftOut& m) {
  Fields f;
  fleet::LeftOut left_out;
  left_out.attempt = wire::FromWire(m.attempt());
  left_out.reason = f.Enum("reason", m.reason(), fleet::LeftOutReason::kFailed);
  left_out.message = f.Name("message", m.message());
  return f.Done(std::move(left_out));
}

absl::StatusOr<fleet::EvaluationResult> FromWire(const v1::EvaluationResult& m) {
  Fields f;
  fleet::EvaluationResult result;
  result.task = f.Sub("task", wire::FromWire(m.task()));
  result.round = Round(m.round());
  result.sums.assign(m.sums().begin(), m.sums().end());
  result.failure = f.Name("failure", m.failure());
  result.digest = f.ReadDigest("digest", m.digest());
  return f.Done(std::move(result));
}

}  // namespace

v1::Part ToWire(const fleet::Part& part, const InlineRule& rule) {
  v1::Part m;
  m.set_round(part.round.value);
  m.set_phase(part.phase.value);
  m.set_broadcast(ToWire(part.broadcast));
  m.mutable_included()->Reserve(static_cast<int>(part.included.size()));
  for (const fleet::ClientRecord& record : part.included) *m.add_included() = ToWire(record);
  for (const fleet::LeftOut& left_out : part.left_out) *m.add_left_out() = ToWire(left_out);
  if (part.sums.named()) *m.mutable_sums() = ToWire(part.sums, rule);
  return m;
}

absl::StatusOr<fleet::Part> FromWire(const v1::Part& m) {
  Fields f;
  fleet::Part part;
  part.round = Round(m.round());
  part.phase = Phase(static_cast<uint8_t>(f.Between<uint32_t>("phase", m.phase(), 0, 255)));
  part.broadcast = f.ReadDigest("broadcast", m.broadcast());
  part.included =
      f.List("included", m.included(), [](const v1::ClientRecord& r) { return FromWire(r); });
  part.left_out =
      f.List("left_out", m.left_out(), [](const v1::LeftOut& l) { return FromWire(l); });
  part.sums = f.Sub("sums", FromWire(m.sums()));
  return f.Done(std::move(part));
}

v1::CommitRequest ToWire(const fleet::CommitRequest& request, const InlineRule& rule) {
  v1::CommitRequest m;
  m.set_session(request.session.value);
  m.set_commit_id(request.commit_id);
  if (request.part.has_value()) *m.mutable_part() = ToWire(*request.part, rule);
  for (const fleet::EvaluationResult& result : request.evaluations) {
    v1::EvaluationResult& out = *m.add_evaluations();
    *out.mutable_task() = ToWire(result.task);
    out.set_round(result.round.value);
    out.mutable_sums()->Add(result.sums.begin(), result.sums.end());
    out.set_failure(CleanText(result.failure));
    out.set_digest(ToWire(result.digest));
  }
  return m;
}

absl::StatusOr<fleet::CommitRequest> FromWire(const v1::CommitRequest& m) {
  Fields f;
  fleet::CommitRequest request;
  request.session = WorkerId(m.session());
  request.commit_id = m.commit_id();
  f.Require(!m.has_part_blob(), "part_blob", "has not been resolved");
  if (m.has_part()) request.part = f.Sub("part", FromWire(m.part()));
  request.evaluations = f.List("evaluations", m.evaluations(),
                               [](const v1::EvaluationResult& r) { return FromWire(r); });
  return f.Done(std::move(request));
}

v1::CommitReply ToWire(const fleet::CommitReply& reply) {
  v1::CommitReply m;
  m.set_verdict(ToWireEnum<v1::Verdict>(reply.verdict));
  m.set_reason(CleanText(reply.reason));
  return m;
}

absl::StatusOr<fleet::CommitReply> FromWire(const v1::CommitReply& m) {
  Fields f;
  fleet::CommitReply reply;
  reply.verdict = f.Enum("verdict", m.verdict(), fleet::Verdict::kRegister);
  reply.reason = f.Name("reason", m.reason());
  return f.Done(std::move(reply));
}

}  // namespace macaw::wire
