#include "server/engine/older_models.h"

#include <algorithm>

namespace macaw::server {
namespace {

// Bytes of older models that may travel inside a lease, whose message has a limit. Larger blobs and
// what is beyond it are fetched.
constexpr uint64_t kMostInside = 1 << 20;

uint64_t BytesInside(const fleet::Blob& blob) {
  uint64_t bytes = blob.bytes != nullptr && blob.size <= kMostInside ? blob.size : 0;
  for (const fleet::CompactForm& form : blob.compact)
    bytes += form.bytes != nullptr ? form.size : 0;
  for (const fleet::Blob& part : blob.parts) bytes += BytesInside(part);
  return bytes;
}

uint64_t BytesInside(const fleet::Broadcast& broadcast) {
  uint64_t bytes = 0;
  for (const fleet::Blob& channel : broadcast.channels) bytes += BytesInside(channel);
  return bytes;
}

void NameOnly(fleet::Blob& blob) {
  if (blob.size <= kMostInside) blob.bytes.reset();
  for (fleet::CompactForm& form : blob.compact) form.bytes.reset();
  std::ranges::for_each(blob.parts, NameOnly);
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
  std::vector<fleet::Blob>& channels = lease.emplace_back(*model).broadcast.channels;
  for (fleet::Blob& channel : channels) {  // all models have one base
    if (channel.has_parts()) NameOnly(channel.parts[1]);
  }
  if (inside + BytesInside(lease.back().broadcast) > kMostInside)
    std::ranges::for_each(channels, NameOnly);
}

}  // namespace macaw::server
