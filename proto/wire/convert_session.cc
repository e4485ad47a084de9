#include <algorithm>
#include <cstring>
#include <limits>

#include "core/blob_digest.h"
#include "core/status.h"
#include "proto/wire/convert.h"
#include "proto/wire/fields.h"
#include "proto/wire/shared_memory.h"

// Shared pieces, hello, register, heartbeat, release, upload offers.
namespace macaw::wire {
namespace {

static_assert(v1::UPLOAD_VERDICT_BUSY == static_cast<int>(fleet::UploadVerdict::kBusy) + 1);

constexpr uint64_t kMaxClients = uint64_t{1} << 40;

std::vector<Attempt> ReadAttempts(const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts) {
  std::vector<Attempt> values;
  values.reserve(attempts.size());
  for (const v1::Attempt& m : attempts) values.push_back(wire::FromWire(m));
  return values;
}

}  // namespace

std::string ToWire(const Digest& digest) {
  if (digest.IsZero()) return {};
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

v1::Fence ToWire(const Fence& fence) {
  v1::Fence m;
  m.set_epoch(fence.epoch);
  m.set_counter(fence.counter);
  return m;
}

v1::Attempt ToWire(const Attempt& attempt) {
  v1::Attempt m;
  m.set_client(attempt.client.value);
  m.set_epoch(attempt.fence.epoch);
  m.set_counter(attempt.fence.counter);
  return m;
}

Attempt FromWire(const v1::Attempt& m) { return {ClientId(m.client()), {m.epoch(), m.counter()}}; }

v1::Blob ToWire(const fleet::Blob& blob, const InlineRule& rule) {
  v1::Blob m;
  if (!blob.named()) return m;
  m.set_digest(ToWire(blob.digest));
  m.set_size(blob.size);
  const bool there = std::ranges::find(rule.have, blob.digest) != rule.have.end();
  if (there) return m;
  if (const auto place = rule.share ? PublishShared(blob) : std::nullopt; place.has_value()) {
    *m.mutable_shared() = ToWire(*place);
  } else if (blob.bytes != nullptr && blob.size <= rule.max_inline) {
    m.set_inline_(blob.bytes->bytes().data(), blob.bytes->size());
  }
  return m;
}

v1::SharedMemory ToWire(const fleet::SharedPlace& place) {
  v1::SharedMemory m;
  m.set_process(static_cast<uint64_t>(place.process));
  m.set_file(static_cast<uint64_t>(place.file));
  return m;
}

absl::StatusOr<fleet::SharedPlace> FromWire(const v1::SharedMemory& m) {
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  Fields f;
  const uint64_t process = f.Between<uint64_t>("process", m.process(), 1, kMost);
  const uint64_t file = f.Between<uint64_t>("file", m.file(), 0, kMost);
  return f.Done(fleet::SharedPlace{static_cast<int32_t>(process), static_cast<int32_t>(file)});
}

absl::StatusOr<fleet::Blob> FromWire(const v1::Blob& m, InlineBytes inline_bytes) {
  Fields f;
  fleet::Blob blob;
  blob.digest = f.ReadDigest("digest", m.digest());
  blob.size = m.size();
  if (!blob.named()) {
    f.Require(m.size() == 0 && !m.has_inline_() && !m.has_shared(), "digest",
              "bytes without a name");
    return f.Done(std::move(blob));
  }
  if (m.has_shared()) blob.place = f.Sub("shared", FromWire(m.shared()));
  if (!m.has_inline_() || !f.status().ok()) return f.Done(std::move(blob));
  if (m.inline_().size() != m.size()) {
    return Malformed("inline",
                     absl::StrCat(m.inline_().size(), " bytes, the blob claims ", m.size()));
  }
  auto buffer = std::make_shared<AlignedBuffer>(AlignedBuffer::Unset(m.inline_().size()));
  if (m.size() > 0) std::memcpy(buffer->bytes().data(), m.inline_().data(), m.size());
  if (inline_bytes == InlineBytes::kVerify &&
      BlobDigest(std::as_const(*buffer).bytes()) != blob.digest) {
    return Refuse(v1::Refusal::REASON_DIGEST_MISMATCH,
                  "inline: the bytes are not those that the digest names", "inline", blob.digest);
  }
  blob.bytes = std::move(buffer);
  return blob;
}

v1::HelloRequest ToWire(const fleet::HelloRequest& request) {
  v1::HelloRequest m;
  m.set_major(request.major);
  m.set_minor(request.minor);
  m.set_program(CleanText(request.program));
  return m;
}

absl::StatusOr<fleet::HelloRequest> FromWire(const v1::HelloRequest& m) {
  Fields f;
  fleet::HelloRequest request;
  request.major = m.major();
  request.minor = m.minor();
  request.program = f.Name("program", m.program());
  return f.Done(std::move(request));
}

v1::HelloReply ToWire(const fleet::HelloReply& reply) {
  v1::HelloReply m;
  m.set_major(reply.major);
  m.set_minor(reply.minor);
  m.set_program(CleanText(reply.program));
  m.set_max_inline_bytes(reply.max_inline_bytes);
  m.set_max_blob_bytes(reply.max_blob_bytes);
  if (reply.run.has_value()) *m.mutable_run() = ToWire(*reply.run);
  return m;
}

absl::StatusOr<fleet::HelloReply> FromWire(const v1::HelloReply& m) {
  Fields f;
  fleet::HelloReply reply;
  reply.major = m.major();
  reply.minor = m.minor();
  reply.program = f.Name("program", m.program());
  reply.max_inline_bytes = m.max_inline_bytes();
  reply.max_blob_bytes = m.max_blob_bytes();
  if (!m.has_run()) return f.Done(std::move(reply));
  reply.run = f.Sub("run", FromWire(m.run()));
  return f.Done(std::move(reply));
}

v1::RegisterRequest ToWire(const fleet::RegisterRequest& request, const InlineRule& rule) {
  v1::RegisterRequest m;
  m.set_name(request.name);
  m.set_incarnation(request.incarnation);
  m.set_slots(request.slots);
  *m.mutable_profile() = ToWire(request.profile);
  m.set_data_digest(ToWire(request.data_digest));
  m.mutable_input_shape()->Add(request.input_shape.begin(), request.input_shape.end());
  m.set_classes(request.classes);
  m.set_clients(request.clients);
  m.set_central_test_rows(request.central_test_rows);
  m.set_central_val_rows(request.central_val_rows);
  for (const Attempt& attempt : request.died_running) *m.add_died_running() = ToWire(attempt);
  if (request.table.named()) *m.mutable_table() = ToWire(request.table, rule);
  m.set_volatile_state(request.volatile_state);
  m.set_owner(request.owner);
  m.set_central_test_digest(ToWire(request.central_test_digest));
  m.set_declined(CleanText(request.declined));
  m.set_declined_now(CleanText(request.declined_now));
  return m;
}

absl::StatusOr<fleet::RegisterRequest> FromWire(const v1::RegisterRequest& m) {
  Fields f;
  fleet::RegisterRequest request;
  f.Require(!m.name().empty(), "name", "a worker needs a name that is stable over restarts");
  request.name = f.Name("name", m.name());
  request.incarnation = m.incarnation();
  request.slots = f.Between<uint32_t>("slots", m.slots(), 1, 65536);
  request.profile = f.Sub("profile", FromWire(m.profile()));
  request.data_digest = f.ReadDigest("data_digest", m.data_digest());
  request.input_shape = f.Shape("input_shape", m.input_shape());
  request.classes = f.Between<int64_t>("classes", m.classes(), 0, int64_t{1} << 40);
  request.clients = f.Between<uint64_t>("clients", m.clients(), 0, kMaxClients);
  request.central_test_rows =
      f.Between<uint64_t>("central_test_rows", m.central_test_rows(), 0, kMaxClients);
  request.central_val_rows =
      f.Between<uint64_t>("central_val_rows", m.central_val_rows(), 0, kMaxClients);
  request.died_running = ReadAttempts(m.died_running());
  request.table = f.Sub("table", FromWire(m.table()));
  if (request.table.named()) {
    constexpr uint64_t kFlags = 8, kLeast = 4, kMost = 4 + 4 + 129;  // bytes of a client
    const uint64_t size = request.table.size;
    f.Require(size >= kFlags + kLeast * request.clients && size <= kFlags + kMost * request.clients,
              "table", absl::StrCat(size, " bytes are no table of ", request.clients, " clients"));
  }
  request.owner = m.owner();
  request.central_test_digest = f.ReadDigest("central_test_digest", m.central_test_digest());
  request.volatile_state = m.volatile_state();
  request.declined = CleanText(m.declined());
  request.declined_now = CleanText(m.declined_now());
  return f.Done(std::move(request));
}

v1::RegisterReply ToWire(const fleet::RegisterReply& reply) {
  v1::RegisterReply m;
  m.set_session(reply.session.value);
  m.set_epoch(reply.epoch);
  *m.mutable_run() = ToWire(reply.run);
  m.set_lease_timeout_ns(reply.lease_timeout.count());
  m.set_heartbeat_every_ns(reply.heartbeat_every.count());
  m.set_run_id(ToWire(reply.run_id));
  m.set_reconnect_every_ns(reply.reconnect_every.count());
  return m;
}

absl::StatusOr<fleet::RegisterReply> FromWire(const v1::RegisterReply& m) {
  Fields f;
  fleet::RegisterReply reply;
  reply.session = SessionId(m.session());
  reply.epoch = m.epoch();
  reply.run = f.Sub("run", FromWire(m.run()));
  reply.lease_timeout = f.ReadDuration("lease_timeout_ns", m.lease_timeout_ns());
  reply.heartbeat_every = f.ReadDuration("heartbeat_every_ns", m.heartbeat_every_ns());
  reply.run_id = f.ReadDigest("run_id", m.run_id());
  reply.reconnect_every = f.ReadDuration("reconnect_every_ns", m.reconnect_every_ns());
  return f.Done(std::move(reply));
}

v1::HeartbeatRequest ToWire(const fleet::HeartbeatRequest& request) {
  v1::HeartbeatRequest m;
  m.set_session(request.session.value);
  for (const Attempt& attempt : request.held) *m.add_held() = ToWire(attempt);
  m.set_progress(request.progress);
  m.set_memory_bytes(request.memory_bytes);
  for (const fleet::LeftOut& left_out : request.left_out) *m.add_left_out() = ToWire(left_out);
  return m;
}

absl::StatusOr<fleet::HeartbeatRequest> FromWire(const v1::HeartbeatRequest& m) {
  Fields f;
  fleet::HeartbeatRequest request;
  request.session = SessionId(m.session());
  request.held = ReadAttempts(m.held());
  request.progress = m.progress();
  request.memory_bytes = m.memory_bytes();
  request.left_out =
      f.List("left_out", m.left_out(), [](const v1::LeftOut& l) { return FromWire(l); });
  return f.Done(std::move(request));
}

v1::HeartbeatReply ToWire(const fleet::HeartbeatReply& reply) {
  v1::HeartbeatReply m;
  m.set_known(reply.known);
  for (const Attempt& attempt : reply.dropped) *m.add_dropped() = ToWire(attempt);
  m.set_stop(reply.stop);
  m.set_heartbeat_every_ns(reply.heartbeat_every.count());
  return m;
}

absl::StatusOr<fleet::HeartbeatReply> FromWire(const v1::HeartbeatReply& m) {
  fleet::HeartbeatReply reply;
  Fields f;
  reply.known = m.known();
  reply.dropped = ReadAttempts(m.dropped());
  reply.stop = m.stop();
  reply.heartbeat_every = f.ReadDuration("heartbeat_every_ns", m.heartbeat_every_ns());
  MACAW_RETURN_IF_ERROR(f.status());
  return reply;
}

v1::ReleaseRequest ToWire(const fleet::ReleaseRequest& request) {
  v1::ReleaseRequest m;
  m.set_session(request.session.value);
  for (const Attempt& attempt : request.attempts) *m.add_attempts() = ToWire(attempt);
  for (const Fence& task : request.tasks) *m.add_tasks() = ToWire(task);
  m.set_leaving(request.leaving);
  return m;
}

absl::StatusOr<fleet::ReleaseRequest> FromWire(const v1::ReleaseRequest& m) {
  fleet::ReleaseRequest request;
  request.session = SessionId(m.session());
  request.attempts = ReadAttempts(m.attempts());
  for (const v1::Fence& task : m.tasks()) request.tasks.push_back({task.epoch(), task.counter()});
  request.leaving = m.leaving();
  return request;
}

v1::BeginUploadRequest ToWire(const PlacedOffer& offer) {
  v1::BeginUploadRequest m;
  m.set_session(offer.offer.session.value);
  m.set_digest(ToWire(offer.offer.digest));
  m.set_size(offer.offer.size);
  m.set_round(offer.offer.round.value);
  m.set_commit_id(offer.offer.commit_id);
  m.set_purpose(ToWireEnum<v1::BeginUploadRequest::Purpose>(offer.offer.purpose));
  if (offer.place.has_value()) *m.mutable_shared() = ToWire(*offer.place);
  return m;
}

absl::StatusOr<PlacedOffer> FromWire(const v1::BeginUploadRequest& m) {
  Fields f;
  PlacedOffer offer;
  offer.offer.session = SessionId(m.session());
  offer.offer.digest = f.ReadDigest("digest", m.digest());
  f.Require(!offer.offer.digest.IsZero(), "digest", "an upload needs a name");
  offer.offer.size = m.size();
  f.Require(m.size() > 0, "size", "is 0");
  offer.offer.round = Round(m.round());
  offer.offer.commit_id = m.commit_id();
  offer.offer.purpose = f.Enum("purpose", m.purpose(), fleet::BlobPurpose::kRecords);
  if (m.has_shared()) offer.place = f.Sub("shared", FromWire(m.shared()));
  return f.Done(offer);
}

v1::BeginUploadReply ToWire(const UploadAnswer& answer) {
  v1::BeginUploadReply m;
  m.set_verdict(ToWireEnum<v1::UploadVerdict>(answer.verdict));
  m.set_offset(answer.offset);
  return m;
}

absl::StatusOr<UploadAnswer> FromWire(const v1::BeginUploadReply& m) {
  Fields f;
  UploadAnswer answer;
  answer.verdict = f.Enum("verdict", m.verdict(), fleet::UploadVerdict::kBusy);
  answer.offset = m.offset();
  return f.Done(answer);
}

}  // namespace macaw::wire
