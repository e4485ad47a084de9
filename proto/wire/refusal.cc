#include "proto/wire/refusal.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/utf8.h"
#include "proto/wire/limits.h"

namespace macaw::wire {
namespace {

constexpr char kPayload[] = "macaw.v1.Refusal";

absl::StatusCode CodeOf(v1::Refusal::Reason reason) {
  switch (reason) {
    case v1::Refusal::REASON_BLOB_MISSING:
    case v1::Refusal::REASON_VERSION:
    case v1::Refusal::REASON_NOT_BEGUN:
      return absl::StatusCode::kFailedPrecondition;
    case v1::Refusal::REASON_DIGEST_MISMATCH:
    case v1::Refusal::REASON_CHECKSUM:
      return absl::StatusCode::kDataLoss;
    case v1::Refusal::REASON_OFFSET:
      return absl::StatusCode::kOutOfRange;
    case v1::Refusal::REASON_TOO_LARGE:
      return absl::StatusCode::kResourceExhausted;
    case v1::Refusal::REASON_UNANSWERED:
    case v1::Refusal::REASON_SHUTTING_DOWN:
    case v1::Refusal::REASON_BUSY:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInvalidArgument;
  }
}

absl::Status WithRefusal(absl::StatusCode code, absl::string_view message,
                         const v1::Refusal& refusal) {
  absl::Status status(code, message);
  status.SetPayload(kPayload, absl::Cord(refusal.SerializeAsString()));
  return status;
}

bool ReadRefusal(const absl::Status& status, v1::Refusal& refusal) {
  const auto payload = status.GetPayload(kPayload);
  return payload.has_value() && refusal.ParseFromString(std::string(*payload));
}

}  // namespace

absl::Status Refuse(v1::Refusal::Reason reason, absl::string_view message, absl::string_view where,
                    const Digest& digest) {
  v1::Refusal refusal;
  refusal.set_reason(reason);
  refusal.set_where(ShortCleanText(where));
  if (!digest.IsZero()) refusal.set_digest(digest.bytes.data(), digest.bytes.size());
  return WithRefusal(CodeOf(reason), message, refusal);
}

v1::Refusal::Reason ReasonOf(const absl::Status& status) {
  v1::Refusal refusal;
  if (status.ok() || !ReadRefusal(status, refusal) ||
      !v1::Refusal::Reason_IsValid(refusal.reason())) {
    return v1::Refusal::REASON_UNSPECIFIED;
  }
  return refusal.reason();
}

absl::Status Malformed(absl::string_view field, absl::string_view why) {
  return Refuse(v1::Refusal::REASON_MALFORMED, absl::StrCat(field, ": ", why), field);
}

absl::Status Within(absl::string_view outer, const absl::Status& status) {
  v1::Refusal refusal;
  if (status.ok() || !ReadRefusal(status, refusal)) return status;
  refusal.set_where(absl::StrCat(outer, ".", refusal.where()));
  return WithRefusal(status.code(), absl::StrCat(outer, ".", status.message()), refusal);
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto payload = status.GetPayload(kPayload);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      ShortCleanText(status.message()),
                      payload.has_value() ? std::string(*payload) : std::string());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::Refusal refusal;
  if (!status.error_details().empty() && refusal.ParseFromString(status.error_details())) {
    result.SetPayload(kPayload, absl::Cord(status.error_details()));
  }
  return result;
}

std::string ShortCleanText(absl::string_view text) {
  std::string clean;
  text = HeadOf(text, kMaxTextBytes);
  while (!text.empty()) {
    const absl::string_view good = text.substr(0, FirstNotUtf8(text));
    absl::StrAppend(&clean, good, good.size() < text.size() ? "?" : "");
    text.remove_prefix(std::min(good.size() + 1, text.size()));
  }
  const auto byte = [&clean](size_t i) {
    return i < clean.size() ? static_cast<unsigned char>(clean[i]) : 0;
  };
  for (size_t i = 0; i < clean.size(); ++i) {
    if (byte(i) < 0x20 && clean[i] != '\n') clean[i] = '?';
    // U+0080 to U+009F, which drive some terminals
    if (byte(i) == 0xc2 && byte(i + 1) < 0xa0) clean[i] = clean[i + 1] = '?';
  }
  return clean;
}

}  // namespace macaw::wire
