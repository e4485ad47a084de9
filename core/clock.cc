#include "core/clock.h"

namespace macaw {
namespace {

class RealSteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const Clock& SteadyClock() {
  static const RealSteadyClock clock;
  return clock;
}

}  // namespace macaw
