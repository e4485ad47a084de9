#include "server/engine/older_models.h"

#include <algorithm>

namespace macaw::server {
namespace {

// Bytes of older models that may travel inside a lease, whose message has a limit. Larger blobs and
// what is beyond it are fetched.
constexpr uint64_t kMostInside = 1 << 20;

uint64_t BytesInside(const fleet::Broadcast& broadcast) {
  uint64_t bytes = 0;
  for (const fleet::Blob& channel : broadcast.channels) {
    if (channel.bytes != nullptr && channel.size <= kMostInside) bytes += channel.size;
    for (const fleet::CompactForm& form : channel.compact)
      bytes += form.bytes != nullptr ? form.size : 0;
  }
  return bytes;
}

}  // namespace

void AddOlder(const std::vector<fleet::OlderModel>& models, uint32_t staleness,
              std::vector<fleet::OlderModel>& lease) {
  if (staleness == 0) return;
  constexpr auto kStaleness = &fleet::OlderModel::staleness;
  if (std::ranges::find(lease, staleness, kStaleness) != lease.end()) return;
  const auto model = std::ranges::find(models, staleness, kStaleness);
  if (model == models.end()) return;
  uint64_t inside = 0;
  for (const fleet::OlderModel& other : lease) inside += BytesInside(other.broadcast);
  lease.push_back(*model);
  if (inside + BytesInside(model->broadcast) <= kMostInside) return;
  for (fleet::Blob& channel : lease.back().broadcast.channels) {
    if (channel.size <= kMostInside) channel.bytes.reset();
    for (fleet::CompactForm& form : channel.compact) form.bytes.reset();
  }
}

}  // namespace macaw::server
