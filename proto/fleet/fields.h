#pragma once

#include "proto/fleet/field_list.h"
#include "proto/fleet/messages.h"

// The one list of the fields of each message. The conversions to and from protobuf
// (proto/wire/convert.cc), the journal (server/journal/bytes.h) and the tests visit it. So a new
// field is a member in messages.h, a number in fleet.proto and a line here, with the rule that a
// receiver checks. What several fields must be together is checked in proto/wire/convert_pieces.cc.
namespace macaw {

// A field whose name in fleet.proto is that of the member, or another one; then its rule, if any.
#define MACAW_FIELD(member, ...) MACAW_FIELD_AS(member, member __VA_OPT__(, ) __VA_ARGS__)
#define MACAW_FIELD_AS(member, wire_name, ...)                       \
  ::macaw::fleet::MakeField(#wire_name, &decltype(of)::type::member, \
                            MACAW_ACCESS(wire_name) __VA_OPT__(, ) __VA_ARGS__)
// A column and the part of the row that it holds.
#define MACAW_PATH(path) \
  [](auto& row) -> auto& { return row.path; }
#define MACAW_COLUMN(wire_name, path, ...)                 \
  ::macaw::fleet::MakeColumn(#wire_name, MACAW_PATH(path), \
                             MACAW_ACCESS(wire_name) __VA_OPT__(, ) __VA_ARGS__)
#define MACAW_FENCE(epoch, counter, path, ...)                                              \
  ::macaw::fleet::MakeFenceColumns(#epoch, #counter, MACAW_PATH(path), MACAW_ACCESS(epoch), \
                                   MACAW_ACCESS(counter) __VA_OPT__(, ) __VA_ARGS__)

constexpr auto FieldsOf(std::type_identity<NumericProfile> of) {
  return std::tuple(MACAW_FIELD(trainer), MACAW_FIELD(instruction_set), MACAW_FIELD(libraries));
}

}  // namespace macaw

namespace macaw::fleet {

using macaw::FieldsOf;

inline constexpr uint64_t kMostClients = uint64_t{1} << 40;
inline constexpr Between kUpToMostClients{uint64_t{0}, kMostClients};

// The last enumerator that may be sent. The wire counts from 1.
constexpr Next LastOf(Next) { return Next::kRegister; }
constexpr EvaluationKind LastOf(EvaluationKind) { return EvaluationKind::kCentralBackdoor; }
constexpr LeftOutReason LastOf(LeftOutReason) { return LeftOutReason::kDeclined; }
constexpr Verdict LastOf(Verdict) { return Verdict::kRegister; }
constexpr BlobPurpose LastOf(BlobPurpose) { return BlobPurpose::kRecords; }
constexpr UploadVerdict LastOf(UploadVerdict) { return UploadVerdict::kBusy; }

// ---- Hello, Register

constexpr auto FieldsOf(Of<HelloRequest> of) {
  return std::tuple(MACAW_FIELD(major), MACAW_FIELD(minor), MACAW_FIELD(program, FreeText()));
}
constexpr auto FieldsOf(Of<HelloReply> of) {
  return std::tuple(MACAW_FIELD(major), MACAW_FIELD(minor), MACAW_FIELD(program, FreeText()),
                    MACAW_FIELD(max_inline_bytes), MACAW_FIELD(max_blob_bytes), MACAW_FIELD(run),
                    MACAW_FIELD(instruction_set, FreeText()), MACAW_FIELD(sum_form));
}
constexpr auto FieldsOf(Of<RegisterRequest> of) {
  return std::tuple(
      MACAW_FIELD(name, NotEmpty("a worker needs a name that is stable over restarts")),
      MACAW_FIELD(incarnation), MACAW_FIELD(slots, Between(1u, 65536u)), MACAW_FIELD(profile),
      MACAW_FIELD(input_shape, Dimensions()),
      MACAW_FIELD(classes, Between(int64_t{0}, static_cast<int64_t>(kMostClients))),
      MACAW_FIELD(data_digest), MACAW_FIELD(clients, kUpToMostClients), MACAW_FIELD(table),
      MACAW_FIELD(owner), MACAW_FIELD(central_test_rows, kUpToMostClients),
      MACAW_FIELD(central_val_rows, kUpToMostClients), MACAW_FIELD(central_test_digest),
      MACAW_FIELD(died_running), MACAW_FIELD(volatile_state), MACAW_FIELD(declined, FreeText()),
      MACAW_FIELD(declined_now, FreeText()), MACAW_FIELD(program, FreeText()),
      MACAW_FIELD(feature_names), MACAW_FIELD(class_names), MACAW_FIELD(arrives));
}
constexpr auto FieldsOf(Of<RegisterReply> of) {
  return std::tuple(MACAW_FIELD(session), MACAW_FIELD(epoch), MACAW_FIELD(run),
                    MACAW_FIELD_AS(lease_timeout, lease_timeout_ns),
                    MACAW_FIELD_AS(heartbeat_every, heartbeat_every_ns), MACAW_FIELD(run_id),
                    MACAW_FIELD_AS(reconnect_every, reconnect_every_ns));
}

// ---- Lease

constexpr auto FieldsOf(Of<LeaseRequest> of) {
  return std::tuple(MACAW_FIELD(session), MACAW_FIELD(wanted), MACAW_FIELD(running),
                    MACAW_FIELD(have), MACAW_FIELD_AS(wait, wait_ns),
                    MACAW_FIELD(declined, FreeText()), MACAW_FIELD(trained));
}
constexpr auto ColumnsOf(Of<Assignment>) {
  constexpr auto kOnce = [](const auto&) { return 1u; };
  constexpr auto kOwnNumber = [](const auto& row) { return row.client.value; };
  constexpr auto kNoState = [](const auto&) { return Fence(); };
  constexpr auto kNewest = [](const auto&) { return 0u; };
  return std::tuple(MACAW_COLUMN(client, client), MACAW_FENCE(epoch, counter, fence),
                    MACAW_COLUMN(multiplicity, multiplicity, Usually(kOnce, Between(1u, ~0u))),
                    MACAW_COLUMN(weight, weight, NotNegative()),
                    MACAW_FENCE(state_epoch, state_counter, state_version, Usually(kNoState)),
                    MACAW_COLUMN(place, place, Usually(kOwnNumber)),
                    MACAW_COLUMN(staleness, staleness, Usually(kNewest)));
}
constexpr auto FieldsOf(Of<OlderModel> of) {
  return std::tuple(MACAW_FIELD(staleness, Between(1u, ~0u)), MACAW_FIELD(broadcast));
}
constexpr auto FieldsOf(Of<TrainingLease> of) {
  return std::tuple(MACAW_FIELD(round), MACAW_FIELD(phase), MACAW_FIELD(broadcast),
                    MACAW_FIELD(max_weight, NotNegative()),
                    MACAW_FIELD(total_weight, NotNegative()), MACAW_FIELD(max_multiplicity),
                    MACAW_FIELD(total_multiplicity), MACAW_FIELD(assignments), MACAW_FIELD(last),
                    MACAW_FIELD(older), MACAW_FIELD(arrives));
}
constexpr auto FieldsOf(Of<EvaluationTask> of) {
  return std::tuple(MACAW_FIELD(fence), MACAW_FIELD(kind), MACAW_FIELD(client), MACAW_FIELD(place),
                    MACAW_FIELD(begin), MACAW_FIELD(end), MACAW_FIELD(state_version),
                    MACAW_FIELD(states));
}
constexpr auto FieldsOf(Of<EvaluationLease> of) {
  return std::tuple(MACAW_FIELD(round), MACAW_FIELD(model), MACAW_FIELD(tasks));
}
constexpr auto FieldsOf(Of<LeaseReply> of) {
  return std::tuple(MACAW_FIELD(next), MACAW_FIELD(training), MACAW_FIELD(evaluation),
                    MACAW_FIELD(deletable), MACAW_FIELD(when_idle));
}

// ---- Heartbeat

constexpr auto FieldsOf(Of<LeftOut> of) {
  return std::tuple(MACAW_FIELD(attempt), MACAW_FIELD(reason), MACAW_FIELD(message, FreeText()));
}
constexpr auto FieldsOf(Of<HeartbeatRequest> of) {
  return std::tuple(MACAW_FIELD(session), MACAW_FIELD(held), MACAW_FIELD(progress),
                    MACAW_FIELD(memory_bytes), MACAW_FIELD(left_out), MACAW_FIELD(sent_bytes),
                    MACAW_FIELD(received_bytes));
}
constexpr auto FieldsOf(Of<HeartbeatReply> of) {
  return std::tuple(MACAW_FIELD(known), MACAW_FIELD(dropped), MACAW_FIELD(stop),
                    MACAW_FIELD_AS(heartbeat_every, heartbeat_every_ns));
}

// ---- Commit

constexpr auto ColumnsOf(Of<ClientRecord>) {
  constexpr auto kOnce = [](const auto&) { return 1u; };
  constexpr auto kAtOnce = [](const auto&) { return 0.0; };
  constexpr auto kUntold = [](const auto&) { return uint64_t{0}; };
  return std::tuple(
      MACAW_COLUMN(client, attempt.client), MACAW_FENCE(epoch, counter, attempt.fence),
      MACAW_COLUMN(multiplicity, multiplicity, Usually(kOnce, Between(1u, ~0u))),
      MACAW_COLUMN(weight, weight, NotNegative()), MACAW_COLUMN(examples, examples),
      MACAW_COLUMN(steps, steps), MACAW_COLUMN(sums, sums),
      MACAW_COLUMN(personal_sums, personal_sums, Padded()),
      MACAW_COLUMN(state_seconds, state_seconds, Usually(kAtOnce, NotNegative())),
      MACAW_COLUMN(load_seconds, load_seconds, NotNegative()),
      MACAW_COLUMN(train_seconds, train_seconds, NotNegative()), MACAW_COLUMN(slot, slot),
      MACAW_COLUMN(began_after, began_after, NotNegative()), MACAW_COLUMN(has_state, has_state),
      MACAW_COLUMN(bytes_up, bytes_up, Usually(kUntold)));
}
constexpr auto FieldsOf(Of<Part> of) {
  return std::tuple(MACAW_FIELD(round), MACAW_FIELD(phase), MACAW_FIELD(broadcast),
                    MACAW_FIELD(included), MACAW_FIELD(left_out), MACAW_FIELD(sums));
}
constexpr auto FieldsOf(Of<EvaluationResult> of) {
  return std::tuple(MACAW_FIELD(task), MACAW_FIELD(round), MACAW_FIELD(sums), MACAW_FIELD(counted),
                    MACAW_FIELD(counts), MACAW_FIELD(choice), MACAW_FIELD(failure, FreeText()),
                    MACAW_FIELD(digest));
}
constexpr auto FieldsOf(Of<CommitRequest> of) {
  return std::tuple(MACAW_FIELD(session), MACAW_FIELD(commit_id), MACAW_FIELD(part),
                    MACAW_FIELD(evaluations), MACAW_FIELD(ask));
}
constexpr auto FieldsOf(Of<CommitReply> of) {
  return std::tuple(MACAW_FIELD(verdict), MACAW_FIELD(reason, FreeText()), MACAW_FIELD(lease));
}

// ---- Release, uploads

constexpr auto FieldsOf(Of<ReleaseRequest> of) {
  return std::tuple(MACAW_FIELD(session), MACAW_FIELD(attempts), MACAW_FIELD(tasks),
                    MACAW_FIELD(leaving));
}
constexpr auto FieldsOf(Of<ReleaseReply>) { return std::tuple(); }
constexpr auto FieldsOf(Of<UploadOffer> of) {
  return std::tuple(MACAW_FIELD(session), MACAW_FIELD(digest), MACAW_FIELD(size),
                    MACAW_FIELD(round), MACAW_FIELD(commit_id), MACAW_FIELD(purpose),
                    MACAW_FIELD_AS(place, shared));
}
constexpr auto FieldsOf(Of<UploadAnswer> of) {
  return std::tuple(MACAW_FIELD(verdict), MACAW_FIELD(offset));
}

#undef MACAW_FIELD
#undef MACAW_FIELD_AS
#undef MACAW_PATH
#undef MACAW_COLUMN
#undef MACAW_FENCE
#undef MACAW_ACCESS

}  // namespace macaw::fleet

// MESSAGE(struct, name in fleet.proto) for each message that is converted by its list.
#define MACAW_FLEET_MESSAGES(MESSAGE)                \
  MESSAGE(fleet::HelloRequest, HelloRequest)         \
  MESSAGE(fleet::HelloReply, HelloReply)             \
  MESSAGE(NumericProfile, NumericProfile)            \
  MESSAGE(fleet::RegisterRequest, RegisterRequest)   \
  MESSAGE(fleet::RegisterReply, RegisterReply)       \
  MESSAGE(fleet::LeaseRequest, LeaseRequest)         \
  MESSAGE(fleet::LeaseReply, LeaseReply)             \
  MESSAGE(fleet::HeartbeatRequest, HeartbeatRequest) \
  MESSAGE(fleet::HeartbeatReply, HeartbeatReply)     \
  MESSAGE(fleet::Part, Part)                         \
  MESSAGE(fleet::CommitRequest, CommitRequest)       \
  MESSAGE(fleet::CommitReply, CommitReply)           \
  MESSAGE(fleet::ReleaseRequest, ReleaseRequest)     \
  MESSAGE(fleet::ReleaseReply, ReleaseReply)         \
  MESSAGE(fleet::UploadOffer, BeginUploadRequest)    \
  MESSAGE(fleet::UploadAnswer, BeginUploadReply)     \
  MESSAGE(fleet::EvaluationTask, EvaluationTask)     \
  MESSAGE(fleet::EvaluationResult, EvaluationResult) \
  MESSAGE(fleet::LeftOut, LeftOut)
