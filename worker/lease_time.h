#pragma once

#include <algorithm>
#include <cmath>

namespace macaw::worker {

// How long a request for work takes: the moving means of its time and of how far a request is from
// that mean. Few requests take longer than Long() (Jacobson, "Congestion Avoidance and Control",
// SIGCOMM 1988).
class LeaseTime {
 public:
  void Took(double seconds) {
    seconds = std::min(seconds, kLongest);
    deviation_ += kMemory * (std::fabs(seconds - mean_) - deviation_);
    mean_ += kMemory * (seconds - mean_);
  }
  double Long() const { return mean_ + 4 * deviation_; }

 private:
  // The weight of the newest time, and the limit above which a time means a broken connection.
  static constexpr double kMemory = 0.1, kLongest = 1;
  double mean_ = 0, deviation_ = 0;
};

}  // namespace macaw::worker
