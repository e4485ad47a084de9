#include <algorithm>

#include "proto/wire/convert.h"
#include "proto/wire/fields.h"

// Commits: the only messages whose size grows with the number of clients. The overloads for parts
// of messages are static: in an unnamed namespace they would hide those of convert.h.
namespace macaw::wire {

static_assert(v1::LEFT_OUT_REASON_DECLINED ==
              static_cast<int>(fleet::LeftOutReason::kDeclined) + 1);
static_assert(v1::VERDICT_REGISTER == static_cast<int>(fleet::Verdict::kRegister) + 1);

static v1::ClientRecords ToWire(const std::vector<fleet::ClientRecord>& records) {
  v1::ClientRecords m;
  bool repeated = false, read_states = false;
  size_t personal = 0;  // number of personal sums per client
  for (const fleet::ClientRecord& record : records) {
    repeated |= record.multiplicity != 1;
    read_states |= record.state_seconds != 0;
    personal = std::max(personal, record.personal_sums.size());
  }
  for (const fleet::ClientRecord& record : records) {
    m.add_client(record.attempt.client.value);
    m.add_epoch(record.attempt.fence.epoch);
    m.add_counter(record.attempt.fence.counter);
    if (repeated) m.add_multiplicity(record.multiplicity);
    m.add_weight(record.weight);
    m.add_examples(record.examples);
    m.add_steps(record.steps);
    m.mutable_sums()->Add(record.sums.begin(), record.sums.end());  // equal number for each
    m.add_load_seconds(record.load_seconds);
    m.add_train_seconds(record.train_seconds);
    m.add_has_state(record.has_state);
    if (read_states) m.add_state_seconds(record.state_seconds);
    m.add_slot(record.slot);
    m.add_began_after(record.began_after);
    for (size_t i = 0; i < personal; ++i)
      m.add_personal_sums(i < record.personal_sums.size() ? record.personal_sums[i] : 0);
  }
  return m;
}

static absl::StatusOr<std::vector<fleet::ClientRecord>> FromWire(const v1::ClientRecords& m) {
  Fields f;
  const int clients = m.client_size();
  f.CheckColumn("epoch", m.epoch(), clients);
  f.CheckColumn("counter", m.counter(), clients);
  f.CheckColumn("multiplicity", m.multiplicity(), clients, true);
  f.CheckColumn("weight", m.weight(), clients);
  f.CheckColumn("examples", m.examples(), clients);
  f.CheckColumn("steps", m.steps(), clients);
  f.CheckColumn("load_seconds", m.load_seconds(), clients);
  f.CheckColumn("train_seconds", m.train_seconds(), clients);
  f.CheckColumn("has_state", m.has_state(), clients);
  f.CheckColumn("state_seconds", m.state_seconds(), clients, true);
  f.CheckColumn("slot", m.slot(), clients);
  f.CheckColumn("began_after", m.began_after(), clients);
  const int sums = clients == 0 ? 0 : m.sums_size() / clients;
  f.Require(m.sums_size() == sums * clients, "sums", "not equally many for every client");
  const int personal = clients == 0 ? 0 : m.personal_sums_size() / clients;
  f.Require(m.personal_sums_size() == personal * clients, "personal_sums",
            "not equally many for every client");
  std::vector<fleet::ClientRecord> records(f.status().ok() ? clients : 0);
  for (int i = 0; i < static_cast<int>(records.size()); ++i) {
    fleet::ClientRecord& record = records[i];
    record.attempt = {ClientId(m.client(i)), {m.epoch(i), m.counter(i)}};
    record.multiplicity = f.MultiplicityAt(m.multiplicity(), i);
    record.weight = f.NotNegativeAt("weight", m.weight(), i);
    record.examples = m.examples(i);
    record.steps = m.steps(i);
    // Accepts any double: the engine judges metrics.
    record.sums.assign(m.sums().begin() + i * sums, m.sums().begin() + (i + 1) * sums);
    record.personal_sums.assign(m.personal_sums().begin() + i * personal,
                                m.personal_sums().begin() + (i + 1) * personal);
    record.load_seconds = f.NotNegativeAt("load_seconds", m.load_seconds(), i);
    record.train_seconds = f.NotNegativeAt("train_seconds", m.train_seconds(), i);
    record.has_state = m.has_state(i);
    if (!m.state_seconds().empty())
      record.state_seconds = f.NotNegativeAt("state_seconds", m.state_seconds(), i);
    record.slot = m.slot(i);
    record.began_after = f.NotNegativeAt("began_after", m.began_after(), i);
  }
  return f.Done(std::move(records));
}

v1::LeftOut ToWire(const fleet::LeftOut& left_out) {
  v1::LeftOut m;
  *m.mutable_attempt() = ToWire(left_out.attempt);
  m.set_reason(ToWireEnum<v1::LeftOutReason>(left_out.reason));
  m.set_message(CleanText(left_out.message));
  return m;
}

absl::StatusOr<fleet::LeftOut> FromWire(const v1::LeftOut& m) {
  Fields f;
  fleet::LeftOut left_out;
  left_out.attempt = FromWire(m.attempt());
  left_out.reason = f.Enum("reason", m.reason(), fleet::LeftOutReason::kDeclined);
  left_out.message = f.Name("message", m.message());
  return f.Done(std::move(left_out));
}

static absl::StatusOr<fleet::EvaluationResult> FromWire(const v1::EvaluationResult& m) {
  Fields f;
  fleet::EvaluationResult result;
  result.task = f.Sub("task", FromWire(m.task()));
  result.round = Round(m.round());
  result.sums.assign(m.sums().begin(), m.sums().end());
  result.counted.assign(m.counted().begin(), m.counted().end());
  result.counts.assign(m.counts().begin(), m.counts().end());
  result.failure = f.Name("failure", m.failure());
  result.digest = f.ReadDigest("digest", m.digest());
  return f.Done(std::move(result));
}

v1::Part ToWire(const fleet::Part& part, const InlineRule& rule) {
  v1::Part m;
  m.set_round(part.round.value);
  m.set_phase(part.phase.value);
  m.set_broadcast(ToWire(part.broadcast));
  *m.mutable_included() = ToWire(part.included);
  for (const fleet::LeftOut& left_out : part.left_out) *m.add_left_out() = ToWire(left_out);
  if (part.sums.named()) *m.mutable_sums() = ToWire(part.sums, rule);
  return m;
}

absl::StatusOr<fleet::Part> FromWire(const v1::Part& m, InlineBytes inline_bytes) {
  Fields f;
  fleet::Part part;
  part.round = Round(m.round());
  part.phase = Phase(static_cast<uint8_t>(f.Between<uint32_t>("phase", m.phase(), 0, 255)));
  part.broadcast = f.ReadDigest("broadcast", m.broadcast());
  part.included = f.Sub("included", FromWire(m.included()));
  part.left_out =
      f.List("left_out", m.left_out(), [](const v1::LeftOut& l) { return FromWire(l); });
  part.sums = f.Sub("sums", FromWire(m.sums(), inline_bytes));
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
    out.mutable_counted()->Add(result.counted.begin(), result.counted.end());
    out.mutable_counts()->Add(result.counts.begin(), result.counts.end());
    out.set_failure(CleanText(result.failure));
    out.set_digest(ToWire(result.digest));
  }
  if (request.ask.has_value()) *m.mutable_ask() = ToWire(*request.ask, request.ask_wait);
  return m;
}

absl::StatusOr<fleet::CommitRequest> FromWire(const v1::CommitRequest& m,
                                              InlineBytes inline_bytes) {
  Fields f;
  fleet::CommitRequest request;
  request.session = SessionId(m.session());
  request.commit_id = m.commit_id();
  f.Require(!m.has_part_blob(), "part_blob", "has not been resolved");
  if (m.has_part()) request.part = f.Sub("part", FromWire(m.part(), inline_bytes));
  request.evaluations = f.List("evaluations", m.evaluations(),
                               [](const v1::EvaluationResult& r) { return FromWire(r); });
  if (m.has_ask()) {
    TimedLeaseRequest ask = f.Sub("ask", FromWire(m.ask()));
    request.ask = std::move(ask.request);
    request.ask_wait = ask.wait;
  }
  return f.Done(std::move(request));
}

v1::CommitReply ToWire(const fleet::CommitReply& reply, const InlineRule& rule) {
  v1::CommitReply m;
  m.set_verdict(ToWireEnum<v1::Verdict>(reply.verdict));
  m.set_reason(CleanText(reply.reason));
  if (reply.lease.has_value()) *m.mutable_lease() = ToWire(*reply.lease, rule);
  return m;
}

absl::StatusOr<fleet::CommitReply> FromWire(const v1::CommitReply& m, InlineBytes inline_bytes) {
  Fields f;
  fleet::CommitReply reply;
  reply.verdict = f.Enum("verdict", m.verdict(), fleet::Verdict::kRegister);
  reply.reason = f.Name("reason", m.reason());
  if (m.has_lease()) reply.lease = f.Sub("lease", FromWire(m.lease(), inline_bytes));
  return f.Done(std::move(reply));
}

}  // namespace macaw::wire
