#include "scheduler/untried.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace macaw::scheduler {

std::vector<const KnownClient*> KnownAmong(const Feedback& feedback, const Trainable& clients) {
  std::vector<const KnownClient*> known;
  known.reserve(feedback.clients().size());
  for (const KnownClient& client : feedback.clients()) {
    if (clients.RowsOf(ClientId(client.client)) > 0) known.push_back(&client);
  }
  return known;
}

std::vector<uint64_t> DrawUntried(RandomStream& stream, const Feedback& feedback,
                                  const Trainable& clients, uint64_t known, uint64_t count) {
  if (count == 0) return {};
  std::vector<uint64_t> drawn;
  if (2 * known <= clients.size() && 2 * count <= clients.size() - known) {
    absl::flat_hash_set<uint64_t> seen;
    while (seen.size() < count) {
      const uint64_t position = stream.Below(clients.size());
      if (feedback.Find(clients[position]) == nullptr) seen.insert(position);
    }
    drawn.assign(seen.begin(), seen.end());
  } else {
    std::vector<uint64_t> untried;
    for (uint64_t position = 0; position < clients.size(); ++position) {
      if (feedback.Find(clients[position]) == nullptr) untried.push_back(position);
    }
    for (const uint64_t place : SampleWithoutReplacement(stream, untried.size(), count))
      drawn.push_back(untried[place]);
  }
  std::ranges::sort(drawn);
  return drawn;
}

}  // namespace macaw::scheduler
