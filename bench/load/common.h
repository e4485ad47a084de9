#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "proto/fleet/link.h"

// What the measurements of bench/load.cc share.
namespace macaw::bench {

using Link = std::unique_ptr<fleet::FleetLink>;

// Threads that make calls; each waits for its answer.
inline constexpr int kThreads = 16;

// Sorts them.
struct Times {
  explicit Times(std::vector<double> seconds);
  double At(double share) const;  // 0.5: the median
  std::vector<double> sorted;
};

// Calls `each` for 0 … count−1 from kThreads threads. Returns the seconds of the calls.
Times All(size_t count, const std::function<void(size_t)>& each);

// As long as the server cannot be reached, at most ten seconds, says hello again.
fleet::HelloReply Hello(fleet::FleetLink& link);

// Lets this process and those that it starts open so many files, or ends it.
void AllowDescriptors(size_t count);

}  // namespace macaw::bench
