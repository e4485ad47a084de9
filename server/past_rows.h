#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "server/coordinator.h"

namespace macaw::server {

// What the files of a run say of rounds that an earlier server has evaluated, so that they are not
// evaluated again.
struct PastRows {
  std::map<Round, std::string> rows;           // of metrics.jsonl
  std::map<Round, std::string> contributions;  // of contributions.jsonl
  double seconds = 0;  // spent on the run by its servers, as the last line of events.jsonl says
};

// The lines after those of the checkpoint, which end at these offsets. A round without one of its
// lines counts as not evaluated, and so do those after it.
absl::StatusOr<PastRows> ReadPastRows(const Options& options, uint64_t metrics_bytes,
                                      uint64_t contributions_bytes);

}  // namespace macaw::server
