#include "state/range_digest.h"

#include "core/status.h"

namespace macaw::state {

absl::StatusOr<Digest> DigestOfRange(const ClientStateStore& store,
                                     std::span<const Attempt> versions) {
  Digester digester;
  digester.Add(uint64_t{versions.size()});
  for (const Attempt& version : versions) {
    MACAW_ASSIGN_OR_RETURN(const ClientState state, store.Get(version));
    digester.Add(version.client.value);
    for (const ConstVectorView& item : state.items) digester.Add(item.bytes);
  }
  return digester.Finish();
}

}  // namespace macaw::state
