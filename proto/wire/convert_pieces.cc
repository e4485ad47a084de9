#include "proto/wire/convert_pieces.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/blob_digest.h"
#include "core/status.h"
#include "proto/fleet/client_table.h"
#include "proto/wire/shared_memory.h"

namespace macaw::wire {
namespace {

constexpr int kMostCompactForms = 8;  // of a blob, in a message
constexpr int kParts = 2;             // fleet::Blob::parts

}  // namespace

std::string ToWire(const Digest& digest) {
  if (digest.IsZero()) return {};
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

void Fill(v1::Fence& m, const Fence& fence, const InlineRule&) {
  m.set_epoch(fence.epoch);
  m.set_counter(fence.counter);
}

absl::Status Take(const v1::Fence& m, Fence& fence, InlineBytes) {
  fence = {m.epoch(), m.counter()};
  return absl::OkStatus();
}

void Fill(v1::Attempt& m, const Attempt& attempt, const InlineRule&) {
  m.set_client(attempt.client.value);
  m.set_epoch(attempt.fence.epoch);
  m.set_counter(attempt.fence.counter);
}

absl::Status Take(const v1::Attempt& m, Attempt& attempt, InlineBytes) {
  attempt = {ClientId(m.client()), {m.epoch(), m.counter()}};
  return absl::OkStatus();
}

v1::Attempt ToWire(const Attempt& attempt) {
  v1::Attempt m;
  Fill(m, attempt, {});
  return m;
}

void Fill(v1::SharedMemory& m, const fleet::SharedPlace& place, const InlineRule&) {
  m.set_process(static_cast<uint64_t>(place.process));
  m.set_file(static_cast<uint64_t>(place.file));
}

absl::Status Take(const v1::SharedMemory& m, fleet::SharedPlace& place, InlineBytes) {
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  FieldChecks f;
  place.process = static_cast<int32_t>(f.Between<uint64_t>("process", m.process(), 1, kMost));
  place.file = static_cast<int32_t>(f.Between<uint64_t>("file", m.file(), 0, kMost));
  return f.status();
}

void Fill(v1::Blob& m, const fleet::Blob& blob, const InlineRule& rule) {
  if (!blob.named()) return;
  m.set_digest(ToWire(blob.digest));
  m.set_size(blob.size);
  if (std::ranges::find(rule.have, blob.digest) != rule.have.end()) return;
  if (const auto place = rule.share ? PublishShared(blob) : std::nullopt; place.has_value()) {
    Fill(*m.mutable_shared(), *place, rule);
  } else if (blob.has_parts()) {  // whole only on request
    for (const fleet::Blob& part : blob.parts) Fill(*m.add_parts(), part, rule);
  } else if (!blob.compact.empty()) {  // whole only on request
    for (const fleet::CompactForm& form : blob.compact) {
      v1::CompactForm& compact = *m.add_compact();
      compact.set_base(ToWire(form.base));
      Fill(*compact.mutable_blob(), {form.digest, form.size, form.bytes}, rule);
    }
  } else if (blob.bytes != nullptr && blob.size <= rule.max_inline) {
    m.set_inline_(blob.bytes->bytes().data(), blob.bytes->size());
  }
}

absl::Status Take(const v1::Blob& m, fleet::Blob& blob, InlineBytes inline_bytes) {
  FieldChecks f;
  blob.digest = f.ReadDigest("digest", m.digest());
  blob.size = m.size();
  if (!blob.named()) {
    f.Require(m.size() == 0 && !m.has_inline_() && !m.has_shared(), "digest",
              "bytes without a name");
    return f.status();
  }
  f.Require(m.compact_size() <= kMostCompactForms, "compact", "too many forms of a blob");
  for (const v1::CompactForm& compact : m.compact()) {
    if (!f.status().ok()) return f.status();
    fleet::Blob form;
    f.Require(compact.blob().compact().empty() && compact.blob().parts().empty() &&
                  !compact.blob().digest().empty(),
              "compact", "a form needs a name, and has no forms or parts itself");
    const Digest base = f.ReadDigest("compact.base", compact.base());
    if (!f.status().ok()) return f.status();
    f.Nested("compact", Take(compact.blob(), form, inline_bytes));
    blob.compact.push_back({base, form.digest, form.size, std::move(form.bytes)});
  }
  f.Require(m.parts_size() == 0 || m.parts_size() == kParts, "parts",
            "a blob has two parts or none");
  for (const v1::Blob& part : m.parts()) {
    f.Require(part.parts().empty() && !part.digest().empty(), "parts",
              "a part needs a name, and has no parts itself");
    if (!f.status().ok()) return f.status();
    f.Nested("parts", Take(part, blob.parts.emplace_back(), inline_bytes));
  }
  if (m.has_shared()) f.Nested("shared", Take(m.shared(), blob.place.emplace(), inline_bytes));
  if (!m.has_inline_() || !f.status().ok()) return f.status();
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
  return absl::OkStatus();
}

v1::Blob ToWire(const fleet::Blob& blob, const InlineRule& rule) {
  v1::Blob m;
  Fill(m, blob, rule);
  return m;
}

absl::StatusOr<fleet::Blob> FromWire(const v1::Blob& m, InlineBytes inline_bytes) {
  fleet::Blob blob;
  MACAW_RETURN_IF_ERROR(Take(m, blob, inline_bytes));
  return blob;
}

void Fill(v1::RunPlan& m, const RunPlan& plan, const InlineRule&) { m = ToWire(plan); }

absl::Status Take(const v1::RunPlan& m, RunPlan& plan, InlineBytes) {
  MACAW_ASSIGN_OR_RETURN(plan, FromWire(m));
  return absl::OkStatus();
}

void CheckTogether(const v1::RegisterRequest&, const fleet::RegisterRequest& request,
                   FieldChecks& f) {
  if (!request.table.named()) return;
  using fleet::ClientTable;
  const uint64_t size = request.table.size;
  f.Require(size >= ClientTable::kFlagBytes + ClientTable::kLeastClientBytes * request.clients &&
                size <= ClientTable::kFlagBytes + ClientTable::kMostClientBytes * request.clients,
            "table", absl::StrCat(size, " bytes are no table of ", request.clients, " clients"));
}

void CheckTogether(const v1::EvaluationTask&, const fleet::EvaluationTask& task, FieldChecks& f) {
  f.Require(task.begin <= task.end, "begin", "lies behind end");
}

void CheckTogether(const v1::LeaseReply&, const fleet::LeaseReply& reply, FieldChecks& f) {
  f.Require(reply.next != fleet::Next::kWork || reply.training.has_value() ||
                reply.evaluation.has_value(),
            "next", "work without any work in it");
}

void CheckTogether(const v1::CommitRequest& m, const fleet::CommitRequest&, FieldChecks& f) {
  f.Require(!m.has_part_blob(), "part_blob", "has not been resolved");
}

void CheckTogether(const v1::BeginUploadRequest&, const fleet::UploadOffer& offer, FieldChecks& f) {
  f.Require(!offer.digest.IsZero(), "digest", "an upload needs a name");
  f.Require(offer.size > 0, "size", "is 0");
}

}  // namespace macaw::wire
