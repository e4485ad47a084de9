#include "proto/fleet/messages.h"

#include <algorithm>

namespace macaw::fleet {

uint64_t Blob::least_bytes() const {
  if (has_parts()) return trained().least_bytes();
  uint64_t least = size;
  for (const CompactForm& form : compact) least = std::min(least, form.size);
  return least;
}

Broadcast Broadcast::Of(std::vector<Blob> channels) {
  if (channels.size() == 1) {
    const Digest name = channels[0].digest;
    return {name, std::move(channels)};
  }
  std::vector<std::byte> digests;
  digests.reserve(channels.size() * sizeof(Digest::bytes));
  for (const Blob& channel : channels) {
    const auto bytes = std::as_bytes(std::span(channel.digest.bytes));
    digests.insert(digests.end(), bytes.begin(), bytes.end());
  }
  return {DigestOf(digests), std::move(channels)};
}

uint64_t Broadcast::size() const {
  uint64_t bytes = 0;
  for (const Blob& channel : channels) bytes += channel.least_bytes();
  return bytes;
}

}  // namespace macaw::fleet
