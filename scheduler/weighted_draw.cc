#include "scheduler/weighted_draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace macaw::scheduler {

std::vector<uint64_t> DrawWeighted(RandomStream& stream, std::span<const double> weights,
                                   uint64_t count) {
  std::vector<std::pair<double, uint64_t>> keys(weights.size());
  for (uint64_t i = 0; i < keys.size(); ++i) {
    const double exponential = -std::log1p(-stream.Uniform());
    keys[i] = {weights[i] > 0 ? exponential / weights[i] : std::numeric_limits<double>::infinity(),
               i};
  }
  const auto end = keys.begin() + static_cast<ptrdiff_t>(count);
  if (end != keys.end()) std::ranges::nth_element(keys, end);
  std::vector<uint64_t> drawn(count);
  for (uint64_t i = 0; i < count; ++i) drawn[i] = keys[i].second;
  std::ranges::sort(drawn);
  return drawn;
}

RowsDraw::RowsDraw(std::span<const uint32_t> rows) : rows_(rows) {
  ends_.reserve(rows.size());
  uint64_t end = 0;
  for (const uint32_t of_client : rows) {
    ends_.push_back(end += of_client);
    with_rows_ += of_client > 0 ? 1 : 0;
  }
}

std::vector<uint64_t> RowsDraw::Draw(RandomStream& stream, uint64_t count) const {
  count = std::min(count, with_rows_);
  // A client that was drawn before is drawn again, which leaves the others in proportion.
  absl::flat_hash_set<uint64_t> drawn;
  for (uint64_t tries = 0; drawn.size() < count && tries < 8 * count; ++tries) {
    const uint64_t row = stream.Below(ends_.back());
    drawn.insert(static_cast<uint64_t>(std::ranges::upper_bound(ends_, row) - ends_.begin()));
  }
  if (drawn.size() < count) {
    std::vector<double> weights;
    std::vector<uint64_t> clients;
    for (uint64_t client = 0; client < rows_.size(); ++client) {
      if (rows_[client] == 0 || drawn.contains(client)) continue;
      clients.push_back(client);
      weights.push_back(rows_[client]);
    }
    for (const uint64_t place : DrawWeighted(stream, weights, count - drawn.size()))
      drawn.insert(clients[place]);
  }
  std::vector<uint64_t> ids(drawn.begin(), drawn.end());
  std::ranges::sort(ids);
  return ids;
}

}  // namespace macaw::scheduler
