#include "state/range_digest.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/status.h"
#include "state/blob.h"

namespace macaw::state {
namespace {

constexpr uint64_t kReadBytes = uint64_t{4} << 20;  // read at once, plus one state
constexpr uint64_t kMostTogether = 512;

}  // namespace

absl::StatusOr<Digest> DigestOfRange(const ClientStateStore& store,
                                     std::span<const Attempt> versions, WorkCounter* work) {
  Digest sum;
  const uint64_t together =
      std::clamp<uint64_t>(kReadBytes / BlobBytes(store.schema()), 1, kMostTogether);
  while (!versions.empty()) {
    const std::span<const Attempt> now = versions.first(std::min(together, versions.size()));
    std::vector<absl::StatusOr<BlobPtr>> blobs = store.GetBlobs(now);
    for (size_t i = 0; i < now.size(); ++i) {
      MACAW_ASSIGN_OR_RETURN(BlobPtr blob, std::move(blobs[i]));
      MACAW_ASSIGN_OR_RETURN(const ClientState state,
                             OpenBlob(std::move(blob), now[i], store.schema()));
      Digester digester;
      digester.Add(now[i].client.value);
      for (const ConstVectorView& item : state.items) digester.Add(item.bytes);
      sum ^= digester.Finish();
    }
    versions = versions.subspan(now.size());
    if (work != nullptr) work->Count();
  }
  return sum;
}

}  // namespace macaw::state
