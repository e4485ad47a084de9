#include "data/foreign_token.h"

#include <algorithm>

#include "core/status.h"

namespace macaw::data {
namespace {

// Remembers the largest token as an unsigned number, so that a negative one is larger than any
// other.
class Search {
 public:
  Search(int64_t known, uint64_t most, uint64_t first)
      : worst_(static_cast<uint32_t>(known - 1)), left_(most), first_(first) {}

  bool over() const { return left_ == 0; }
  const std::optional<ForeignToken>& found() const { return found_; }

  // `where`: of the rows; its token and row do not count.
  void Look(const Rows& rows, ForeignToken where) {
    const uint64_t tokens = rows.block.row_bytes / sizeof(int32_t);
    for (uint64_t row = 0; row < rows.size() && !over(); ++row) {
      const std::byte* const bytes = rows.block.features + rows.at(row) * rows.block.row_bytes;
      const auto* const token = reinterpret_cast<const int32_t*>(bytes);
      uint32_t largest = 0;
      for (uint64_t i = first_; i < tokens; ++i)
        largest = std::max(largest, static_cast<uint32_t>(token[i]));
      left_ -= std::min(left_, tokens);
      if (largest <= worst_) continue;
      worst_ = largest;
      where.token = static_cast<int32_t>(largest);
      where.row = row;
      found_ = where;
    }
  }

 private:
  uint32_t worst_;
  uint64_t left_;  // tokens
  const uint64_t first_;
  std::optional<ForeignToken> found_;
};

}  // namespace

absl::StatusOr<std::optional<ForeignToken>> FindForeignToken(const Dataset& dataset, int64_t known,
                                                             uint64_t most, uint64_t first) {
  const DatasetInfo& info = dataset.info();
  if (info.feature_type != FeatureType::kI32 || info.declared) return std::nullopt;
  Search search(known, most, first);
  for (ClientId client; client.value < info.clients && !search.over(); ++client.value) {
    for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
      if (dataset.Examples(client, split) == 0) continue;
      MACAW_ASSIGN_OR_RETURN(const Rows rows, dataset.Client(client, split));
      search.Look(rows, {.client = client, .split = split});
    }
  }
  search.Look(dataset.CentralTest(), {.central = true, .split = Split::kTest});
  search.Look(dataset.CentralValidation(), {.central = true, .split = Split::kValidation});
  return search.found();
}

}  // namespace macaw::data
