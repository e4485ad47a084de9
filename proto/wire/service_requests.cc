#include "proto/wire/service_requests.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {

uint64_t MostObjects(const ServerOptions& options) {
  constexpr uint64_t kMostOfTasks = 1 << 17;
  return kMostOfTasks + 4 * std::min(options.max_part_clients, uint64_t{1} << 32);
}

absl::Status RefuseBusy(absl::string_view why) {
  return Refuse(v1::Refusal::REASON_BUSY, absl::StrCat(why, ": repeat the call"));
}

absl::Status ResolveBlob(ServiceState& state, const fleet::Caller& caller, SessionId session,
                         fleet::BlobPurpose purpose, fleet::Blob& blob) {
  if (!blob.named() || blob.bytes != nullptr) return absl::OkStatus();
  auto bytes = state.uploads.Get(session, purpose, blob.digest);
  if (bytes == nullptr && purpose == fleet::BlobPurpose::kPopulation)
    bytes = state.handler.FindBlob(caller, blob.digest);
  if (bytes == nullptr) {
    return Refuse(
        v1::Refusal::REASON_BLOB_MISSING,
        absl::StrCat("blob ", blob.digest.Hex(), " is not here: upload it, then repeat the call"),
        "", blob.digest);
  }
  if (bytes->size() != blob.size)
    return Malformed("size", "is not the size of the blob with this digest");
  blob.bytes = std::move(bytes);
  return absl::OkStatus();
}

}  // namespace macaw::wire
