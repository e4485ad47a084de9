#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "plan/devices.h"
#include "virtual_time/devices.h"

namespace macaw::virtual_time {

// What a random stream of devices draws: StreamKey::extra of Purpose::kDuration, of which
// scheduler/over_selection.cc has 1 and 2. The numbers are part of every result.
enum class DrawOf : uint64_t { kDevice = 3, kNetwork = 4, kTurn = 5, kPresence = 6, kTie = 7 };

// Which row of a table is a client's: one that the seed draws, all being equally likely, or the one
// with the client's name. Immutable. Memory: by name four bytes a client, else none.
class Assignment {
 public:
  // `names`: of the rows; `table` says in errors which these are.
  static absl::StatusOr<Assignment> Make(const DevicesConfig& config, DrawOf what, size_t rows,
                                         std::span<const std::string> names,
                                         const Population& population, const std::string& table);
  size_t Of(ClientId client) const;

 private:
  Assignment() = default;

  uint64_t seed_ = 0;
  DrawOf what_ = DrawOf::kDevice;
  size_t rows_ = 0;
  std::vector<uint32_t> by_client_;  // empty: drawn
};

}  // namespace macaw::virtual_time
