#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

// A token that a model does not know, and where it is.
struct ForeignToken {
  int32_t token = 0;
  bool central = false;  // in the central set of the split; else in rows of the client
  ClientId client{};
  Split split = Split::kTrain;
  uint64_t row = 0;  // among these
};

// The largest token of the data, if a model that knows 0 … known − 1 does not know it; a negative
// one before any other. Nothing if it knows all of them, or if the rows are not tokens, or not here
// (DatasetInfo::declared). Looks at `most` tokens or a few more, so at a part of data that have
// more; of each row from position `first` on.
absl::StatusOr<std::optional<ForeignToken>> FindForeignToken(const Dataset& dataset, int64_t known,
                                                             uint64_t most, uint64_t first = 0);

}  // namespace macaw::data
