#include "data/dataset.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/text.h"

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

absl::StatusOr<std::vector<std::string>> NamesOfClasses(const std::vector<std::string>& given,
                                                        const DatasetInfo& info) {
  if (given.empty()) return info.class_names;
  const auto names = static_cast<int64_t>(given.size());
  if (names != info.classes) {
    return Refuse("data.class_names has ", names, " names, but ", info.name, " has ", info.classes,
                  " classes",
                  names > info.classes && info.classes > 0
                      ? "; where some have no rows here, data.classes says how many there are"
                      : "");
  }
  const std::vector<std::string>& own = info.class_names;
  for (size_t c = 0; c < own.size(); ++c) {
    const auto place = std::ranges::find(own, given[c]);
    if (place == own.end() || own[c] == given[c]) continue;
    return Refuse("data.class_names calls class ", c, " of ", info.name, " ", Quoted(given[c]),
                  ", which is the data's own name of class ", place - own.begin(),
                  ": the names do not change what is stored. Give them in the order of the data (",
                  absl::StrJoin(own, ", "), "), or take them out");
  }
  return given;
}

std::string Dataset::ClientName(ClientId client) const { return absl::StrCat(client.value); }

}  // namespace macaw::data
