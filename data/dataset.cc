#include "data/dataset.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace macaw::data {

uint64_t TokensOf(const Rows& rows) {
  const ExampleBlock& block = rows.block;
  if (block.type != FeatureType::kI32) return 0;
  if (block.lengths == nullptr) return rows.size() * (block.row_bytes / sizeof(int32_t));
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < rows.size(); ++i) {
    tokens += static_cast<uint64_t>(block.lengths[rows.at(i)]);
  }
  return tokens;
}

std::pair<NoiseKey, uint64_t> Rows::Own(uint64_t i) const {
  NoiseKey key = noise;
  if (owners.empty()) return {key, i};
  const RowOwner& owner =
      *std::prev(std::upper_bound(owners.begin(), owners.end(), i,
                                  [](uint64_t row, const RowOwner& o) { return row < o.first; }));
  key.client = owner.client;
  return {key, i - owner.first};
}

std::string Dataset::ClientName(ClientId client) const { return absl::StrCat(client.value); }

}  // namespace macaw::data
